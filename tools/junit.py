"""Reads JUnit reports, as pytest, CTest and GoogleTest write them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path


def cases(report: Path) -> Iterator[tuple[ElementTree.Element, str]]:
    """Each test of a report that was run, or would have been but was skipped: passed, failed or skipped.

    GoogleTest lists the tests that a filter leaves out as well: they are not given.
    """
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped") is not None
        if case.get("status") == "notrun" and not skipped:
            continue
        failed = case.get("status") == "fail" or any(
            case.find(tag) is not None for tag in ("failure", "error")
        )
        yield case, "skipped" if skipped else "failed" if failed else "passed"
