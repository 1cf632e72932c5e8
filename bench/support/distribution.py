"""How a ratio is distributed over a benchmark's cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cell = dict[str, Any]
HEAD = "least  middle    95 %    most   the largest"  # above the numbers of line_of()


def line_of(
    what: str, cells: list[Cell], ratio: Callable[[Cell], float], where: Callable[[Cell], str]
) -> str:
    """A line of a table: the ratio's least, middle, 95th percentile and most, and which cell has most."""
    found = sorted(cells, key=ratio)
    at = "".join(f"{ratio(found[int(part * (len(found) - 1))]):8.3f}" for part in (0, 0.5, 0.95, 1))
    return f"{what:28}{at}   {where(found[-1])}"
