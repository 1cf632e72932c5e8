"""Results of the compatibility tests: outcomes, and rows as JSON with the versions of the libraries used."""

from __future__ import annotations

import argparse
import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree


def options(description: str | None, only: str, of: str) -> argparse.ArgumentParser:
    """Options that each part takes: ``--only``, a pattern that `of` describes, and ``--json``."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=only, metavar="PATTERN", help=of)
    parser.add_argument("--json", type=Path, help="write the rows there")
    return parser


def outcomes(report: Path) -> dict[str, str]:
    """Outcomes in a report of pytest, by test: ``passed``, ``skipped`` or ``failed``."""

    def outcome(case: ElementTree.Element) -> str:
        if case.find("skipped") is not None:
            return "skipped"
        return "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"

    return {case.get("name", ""): outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def write(file: Path, packages: list[str], rows: list[dict[str, Any]]) -> None:
    """Writes the rows, with this commit and the versions of these packages and of PyTorch."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(asked, capture_output=True, text=True, check=False)
    versions = {package: metadata.version(package) for package in [*packages, "torch"]}
    versions["commit"] = head.stdout.strip() or "outside of a repository"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))
