"""Gives the wheel its one dependency: the PyTorch series that it is compiled against.

PyTorch keeps its binary interface within a minor version only, so a wheel built against 2.13 must not be run
with 2.15, which pip would install by itself.
"""

from __future__ import annotations

import sys
from importlib import metadata


def dynamic_metadata(field: str, settings: object = None) -> list[str]:
    """The value of [project] `dependencies` (the build backend's provider interface)."""
    if field != "dependencies":
        raise ValueError(f"no value for {field}")
    try:
        major, minor = metadata.version("torch").split(".")[:2]
    except metadata.PackageNotFoundError:
        raise SystemExit(
            f"innkeeper is built for the PyTorch that is installed, and {sys.executable} has none:\n"
            "  pip install torch==2.13.*"
        ) from None
    return [f"torch=={major}.{minor}.*"]
