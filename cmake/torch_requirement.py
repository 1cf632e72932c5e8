"""Gives the wheel its one dependency: the PyTorch series that it is compiled against.

PyTorch keeps its binary interface within a minor version only, so a wheel built against 2.13 must not be run
with 2.15, which pip would install by itself.
"""

from __future__ import annotations

from importlib import metadata


def dynamic_metadata(field: str, settings: object = None) -> list[str]:
    """The value of [project] `dependencies` (the build backend's provider interface)."""
    if field != "dependencies":
        raise ValueError(f"no value for {field}")
    major, minor = metadata.version("torch").split(".")[:2]
    return [f"torch=={major}.{minor}.*"]
