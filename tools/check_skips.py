"""Counts the tests that were skipped, from JUnit reports, against tests/allowed_skips.txt.

Usage: check_skips.py [--quiet] RUNNER REPORT...
A line of the file reads `RUNNER COUNT REASON`: at most COUNT of that runner's skips may give a reason that
contains REASON. A skip that no line covers, or one too many, fails the check. Blank lines and # are ignored.
A test that several reports name is counted once. With --quiet nothing is printed unless the check fails.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ALLOWED = Path(__file__).parent.parent / "tests" / "allowed_skips.txt"
GTEST_REASON = re.compile(r": Skipped\n(.*?)\n?\[  SKIPPED \]", re.DOTALL)


@dataclass
class Allowance:
    """One line of the file: how many skips with this reason are left."""

    left: int
    reason: str


def allowances(runner: str, text: str) -> list[Allowance]:
    """The lines of `text` for one runner."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("#", 1)[0].split(maxsplit=2)
        if not fields:
            continue
        if len(fields) != 3 or not fields[1].isdigit():
            raise SystemExit(f"{ALLOWED.name}:{number}: expected RUNNER COUNT REASON")
        if fields[0] == runner:
            found.append(Allowance(int(fields[1]), fields[2]))
    return found


def skips(report: Path) -> dict[str, str]:
    """Test -> reason, of each skip in a JUnit report. Expected failures count as skips."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        mark = case.find("skipped")
        if mark is not None:
            said = GTEST_REASON.search(case.findtext("system-out") or "")
            reason = said.group(1) if said else f"{mark.get('message', '')} {mark.text or ''}"
            found[f"{case.get('classname', '')}::{case.get('name', '')}"] = " ".join(reason.split())
    return found


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    quiet = "--quiet" in arguments
    runner, *reports = [argument for argument in arguments if argument != "--quiet"]
    left = allowances(runner, ALLOWED.read_text())
    skipped = {test: reason for report in reports for test, reason in skips(Path(report)).items()}
    unexpected = []
    for test, reason in skipped.items():
        allowance = next((each for each in left if each.left > 0 and each.reason in reason), None)
        if allowance is None:
            unexpected.append(f"  {test}: {reason}")
        else:
            allowance.left -= 1
    if unexpected:
        print(f"{runner}: {len(unexpected)} skipped tests that tests/allowed_skips.txt does not allow:")
        print("\n".join(unexpected))
        return 1
    if not quiet:
        print(f"{runner}: {len(skipped)} skipped, all allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
