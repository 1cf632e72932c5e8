"""What operators that move CPU tensors tell: each place of the program once, on standard error."""

from __future__ import annotations

import sys

from innkeeper import _C
from innkeeper.report import format_bytes
from innkeeper.script import here

_told: set[str] = set()


def tell(operator: str, shape: list[int], size: int) -> None:
    """Names a place of the program whose operator moves a CPU tensor of this shape and these bytes."""
    place = here()
    if place in _told:
        return
    _told.add(place)
    name, bytes_moved = operator.removeprefix("aten::"), format_bytes(size)
    print(
        f"innkeeper: {place}: {name} moves a CPU tensor of {shape} ({bytes_moved}) to the device, each time; "
        '.to("managed") moves it once, INNKEEPER_MIXED=refuse makes this an error',
        file=sys.stderr,
        flush=True,
    )


def install() -> None:
    """Has operators tell. Called once, by the import."""
    _C.set_mixed_notice(tell)
