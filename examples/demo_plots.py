"""Plots as SVG that is part of an HTML page: it takes any width, and its text keeps its size.

Lines lie in an inner picture of 1000 by 1000 that is stretched over the plot; text lies beside it, placed by
percentages. Colours are the page's, by class (demo_page.css).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

INNER = 1000
Point = tuple[float, float]


def ticks(top: float, count: int) -> list[float]:
    """Round numbers from 0 to at most ``top``, about ``count`` of them."""
    if top <= 0:
        return [0.0]
    rough = top / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def tick_text(value: float, all_of_them: Sequence[float]) -> str:
    """With as many decimals as tell neighbours apart."""
    step = all_of_them[1] - all_of_them[0] if len(all_of_them) > 1 else 1
    return f"{value:,.{max(0, -math.floor(math.log10(step)))}f}"


class Plot:
    """One plot of numbers over steps. Drawn in the order of the calls; ``svg()`` gives it.

    Args:
        first, last: the steps at its left and right edge.
        top: the number at its upper edge; 0 is the lower one.
        unit: of the numbers.

    """

    def __init__(self, first: float, last: float, top: float, unit: str) -> None:
        self._first, self._last, self._top, self._unit = first, max(last, first + 1e-9), top or 1.0, unit
        self._drawn: list[str] = []
        self._over: list[str] = []

    def _x(self, step: float) -> float:
        return (step - self._first) / (self._last - self._first) * INNER

    def _y(self, value: float) -> float:
        return INNER - value / self._top * INNER

    def _path(self, points: Iterable[Point]) -> str:
        """Corner after corner, each as the way from the one before, and none twice."""
        parts: list[str] = []
        at = (0, 0)
        for step, value in points:
            here = (round(self._x(step)), round(self._y(value)))
            if not parts:
                parts.append(f"M{here[0]} {here[1]}l")
            elif here != at:
                parts.append(f"{here[0] - at[0]} {here[1] - at[1]} ")
            at = here
        return "".join(parts).strip()

    def area(self, points: Sequence[Point], kind: str, below: Sequence[Point] | None = None) -> None:
        """The area between ``points`` and ``below``, by default the lower edge."""
        floor = below if below is not None else [(points[0][0], 0.0), (points[-1][0], 0.0)]
        self._drawn.append(f'<path class="area {kind}" d="{self._path([*points, *reversed(floor)])}z"/>')

    def line(self, points: Sequence[Point], kind: str) -> None:
        """A line through ``points``."""
        self._drawn.append(f'<path class="line {kind}" d="{self._path(points)}"/>')

    def limit(self, value: float, text: str) -> None:
        """A level that is not passed, with a text above it; one that is too high is told of at the edge."""
        if value > self._top:
            text = f"{escape(text)} \N{UPWARDS ARROW}"
            self._over.append(f'<text class="limit" x="100%" y="12" text-anchor="end">{text}</text>')
            return
        y = f"{self._y(value) / INNER:.2%}"
        for kind in ("around", "limit"):
            self._over.append(f'<line class="{kind}" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        self._over.append(
            f'<text class="limit" x="100%" y="{y}" dx="-4" dy="-6" text-anchor="end">{escape(text)}</text>'
        )

    def svg(self, title: str, description: str, along_text: str = "step") -> str:
        """The picture with its axes; ``title`` and ``description`` are for blind readers."""
        scale = ticks(self._top, 4)
        grid = [
            f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
            f'<text x="0" y="{y}" dx="-8" dy=".35em" text-anchor="end">{tick_text(value, scale)}</text>'
            for value in scale
            for y in [f"{self._y(value) / INNER:.2%}"]
        ]
        begin = math.ceil(self._first)
        marks = (
            ticks(self._last, 5) if begin <= 2 else [begin + part for part in ticks(self._last - begin, 3)]
        )
        along = [
            f'<text x="{self._x(step) / INNER:.2%}" y="100%" dy="18" text-anchor="middle">{step:.0f}</text>'
            for step in sorted({begin, *marks})
            if step >= begin and step == round(step)
        ]
        return (
            f'<svg class="plot" role="img"><title>{escape(title)}</title><desc>{escape(description)}</desc>'
            f'<text x="0" y="0" dx="-8" dy="-14" text-anchor="end">{escape(self._unit)}</text>'
            f"{''.join(grid)}"
            f'<svg viewBox="0 0 {INNER} {INNER}" preserveAspectRatio="none">{"".join(self._drawn)}</svg>'
            f"{''.join(self._over)}{''.join(along)}"
            f'<text x="100%" y="100%" dy="34" text-anchor="end">{escape(along_text)}</text></svg>'
        )
