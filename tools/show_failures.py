"""Prints failed tests from JUnit reports, for a log of which only the end of a run's output is kept.

Usage: show_failures.py REPORT...
Of each test that failed: its name, then the first and the last lines of its output.
"""

from __future__ import annotations

import sys
from pathlib import Path

from junit import cases

FIRST, LAST = 12, 12  # lines of a test's output
WIDTH = 300  # characters of a line


def shortened(output: str) -> list[str]:
    """The first and the last lines of `output`, each cut to WIDTH characters."""
    lines = [line if len(line) <= WIDTH else line[:WIDTH] + " ..." for line in output.splitlines()]
    left_out = len(lines) - FIRST - LAST
    if left_out <= 1:
        return lines
    return [*lines[:FIRST], f"({left_out} lines)", *lines[-LAST:]]


def failures(report: Path) -> dict[str, str]:
    """Test -> output, of each that failed in a JUnit report."""
    found = {}
    for case, _ in cases(report):
        mark = case.find("failure")
        if mark is None:
            mark = case.find("error")
        if mark is not None:
            output = case.findtext("system-out") or mark.text or mark.get("message") or ""
            test = ".".join(filter(None, (case.get("classname"), case.get("name"))))
            found[test] = output.strip("\n")
    return found


def main(reports: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    for report in reports:
        for test, output in failures(Path(report)).items():
            print(f"---- {test}")
            print("\n".join(shortened(output)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
