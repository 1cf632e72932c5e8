"""Prints how many tests JUnit or GoogleTest reports tell of: count_tests.py NAME REPORT...

With --failed instead of a name: the tests that failed, as a filter for GoogleTest.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def outcome(case: ElementTree.Element) -> str | None:
    """What became of one test; nothing if it was not run (disabled, or filtered out)."""
    if case.get("status") == "notrun":
        return None
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def counted(reports: list[Path]) -> Counter[str]:
    """Outcome -> how many tests of all reports."""
    found = (outcome(case) for report in reports for case in ElementTree.parse(report).iter("testcase"))
    return Counter(each for each in found if each is not None)


def failed(reports: list[Path]) -> set[str]:
    """The names of the tests that failed."""
    return {
        f"{case.get('classname')}.{case.get('name')}"
        for report in reports
        for case in ElementTree.parse(report).iter("testcase")
        if outcome(case) == "failed"
    }


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    name, *reports = arguments
    if name == "--failed":
        print(":".join(sorted(failed([Path(report) for report in reports if Path(report).exists()]))))
        return 0
    counts = counted([Path(report) for report in reports if Path(report).exists()])
    words = [
        f"{counts[each]} {each}"
        for each in ("passed", "failed", "skipped")
        if counts[each] or each == "passed"
    ]
    print(f"{name}: {sum(counts.values())} tests, {', '.join(words)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
