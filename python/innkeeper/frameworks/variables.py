"""Environment variables that a framework reads when it starts, set for as long as a choice needs them."""

from __future__ import annotations

import os

_written: dict[str, str] = {}


def write(name: str, value: str | None) -> None:
    """Sets the variable, or removes it where ``value`` is None; a value of the program's own stays."""
    if os.environ.get(name) != _written.pop(name, None):
        return
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = _written[name] = value
