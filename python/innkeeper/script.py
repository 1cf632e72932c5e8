"""The script's own lines: the caller of a call that cannot be mapped, and notes that are made once."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import FrameType

import torch

_PACKAGES = tuple(
    str(directory)
    for directory in (
        Path(torch.__file__).parent,
        Path(__file__).parent,
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        sysconfig.get_path("stdlib"),
    )
)
_noted: set[str] = set()


def is_own(frame: FrameType) -> bool:
    """Whether it runs the script's own code: neither a package's nor Python's."""
    name = frame.f_code.co_filename
    return not name.startswith(_PACKAGES) and not name.startswith("<frozen")


def own_frame() -> FrameType | None:
    """The innermost frame of the script's own code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame):
        frame = frame.f_back
    return frame


def here() -> str:
    """Such as ``"train.py:12"``: the script's line that is running."""
    frame = own_frame()
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else Path(sys.argv[0]).name


def note(key: str, text: str) -> None:
    """Says it in one line on standard error, with the script's line, once per process and key."""
    if key not in _noted:
        _noted.add(key)
        print(f"innkeeper: {here()}: {text}", file=sys.stderr, flush=True)
