"""What was found, as JSON: rows, and the versions of what they were found with."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any


def write(file: Path, packages: list[str], rows: list[dict[str, Any]]) -> None:
    """Writes the rows, with this commit and the versions of these packages and of PyTorch."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    head = subprocess.run(asked, capture_output=True, text=True, check=False)
    versions = {package: metadata.version(package) for package in [*packages, "torch"]}
    versions["commit"] = head.stdout.strip() or "outside of a repository"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))
