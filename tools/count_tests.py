"""Prints how many tests JUnit or GoogleTest reports tell of: count_tests.py NAME REPORT...; none is an error.

With --failed instead of a name: the tests that failed, as a filter for GoogleTest.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from junit import cases


def failed(reports: list[Path]) -> set[str]:
    """The names of the tests that failed."""
    return {
        f"{case.get('classname')}.{case.get('name')}"
        for report in reports
        for case, outcome in cases(report)
        if outcome == "failed"
    }


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    name, *paths = arguments
    reports = [Path(path) for path in paths if Path(path).exists()]
    if name == "--failed":
        print(":".join(sorted(failed(reports))))
        return 0
    counts = Counter(outcome for report in reports for _, outcome in cases(report))
    words = [
        f"{counts[each]} {each}"
        for each in ("passed", "failed", "skipped")
        if counts[each] or each == "passed"
    ]
    print(f"{name}: {counts.total()} tests, {', '.join(words)}")
    return int(not counts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
