"""An environment's requirements from pyproject.toml: prints the packages of the named groups, one a line.

Groups are the optional ones of [project] and `build`, for the build system's own (PyTorch aside).
With --torch-usable: exits with 0 if PyTorch 2.11 or newer is installed, else 1.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

TOP = Path(__file__).parent.parent


def torch_usable() -> bool:
    """Whether the PyTorch that is installed is new enough to build against."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= (2, 11)


def strings_of(key: str, text: str) -> list[str]:
    """The strings in the list `key = [...]` of a TOML text (Python 3.10 has no TOML reader)."""
    found = re.search(rf"^{key} = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit(f"pyproject.toml has no list named {key}")
    return re.findall(r'"([^"]+)"', found.group(1))


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    if arguments == ["--torch-usable"]:
        return 0 if torch_usable() else 1
    text = (TOP / "pyproject.toml").read_text()
    for group in arguments:
        for need in strings_of("requires" if group == "build" else group, text):
            if re.match(r"torch\b(?!-)", need) is None:
                print(need)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
