"""The figures of the demo's page: the bytes on each node, the moves, their cost, and the falling loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise

from demo_plots import Plot, Point
from demo_report import (
    Run,
    Unit,
    budget_of,
    bytes_text,
    bytes_unit,
    clock_of,
    is_accelerator,
    is_simulated,
    moved_texts,
    of_gpus,
    per_step,
    seconds_unit,
    short,
    typical,
)

MOST_POINTS, MOST_BARS = 600, 60  # a screen shows no more
HEADROOM = 1.08  # height of a plot, in multiples of its highest point


def figure(title: str, legend: Iterable[tuple[str, str]], picture: str, note: str = "") -> str:
    """A plot with its legend: (colour, text) each."""
    keys = "".join(f'<li><i class="{colour}"></i>{escape(text)}</li>' for colour, text in legend)
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return (
        f"<figure><figcaption><h3>{escape(title)}</h3><ul>{keys}</ul></figcaption>"
        f'<div class="frame">{picture}</div>{below}</figure>'
    )


def steps_of(run: Run) -> list[float]:
    """At which step each sample was taken, by the operators that had run when each step ended."""
    ends = [0, *(step["ops"] for step in run["steps"])]
    found, step = [], 0
    for op in run["samples"]["op"]:
        while step + 2 < len(ends) and op > ends[step + 1]:
            step += 1
        part = (op - ends[step]) / max(1, ends[step + 1] - ends[step])
        found.append(step + min(part, 1.0))
    return found


def thinned(run: Run, first: float) -> tuple[list[float], list[list[int]]]:
    """Steps from ``first`` on, and bytes on each node: of neighbours the lowest and the highest."""
    samples = list(zip(steps_of(run), run["samples"]["resident"], strict=True))
    samples = [sample for sample in samples if sample[0] >= first]
    together = max(1, math.ceil(2 * len(samples) / MOST_POINTS))
    kept: list[tuple[float, list[int]]] = []
    for start in range(0, len(samples), together):
        part = samples[start : start + together]
        ends = {pick(range(len(part)), key=lambda i, part=part: sum(part[i][1])) for pick in (min, max)}
        kept += [part[i] for i in sorted(ends)]
    return [step for step, _ in kept], [used for _, used in kept]


def colour_of(node: str, number: int) -> str:
    """The class of a node's colour."""
    return f"gpu{number % 4}" if is_accelerator(node) else node


def on_scale(steps: Sequence[float], values: Sequence[float], unit: Unit) -> list[Point]:
    """Points of a plot in ``unit``."""
    return [(step, value / unit.size) for step, value in zip(steps, values, strict=True)]


def memory(run: Run, like: Run, last: int = 0) -> str:
    """Bytes on each node as areas on top of each other, GPUs lowest; as high as a plot of ``like``.

    With ``last`` only that many last steps.
    """
    first = max(0, len(run["steps"]) - last) if last else 0
    steps, resident = thinned(run, first)
    top = HEADROOM * max(max(map(sum, of["samples"]["resident"])) for of in (run, like))
    unit = bytes_unit(top)
    plot = Plot(first, len(run["steps"]), top / unit.size, unit.name)
    below = [0] * len(steps)
    legend = []
    for number, name in enumerate(run["samples"]["nodes"]):
        above = [low + used[number] for low, used in zip(below, resident, strict=True)]
        colour = colour_of(name, number)
        plot.area(on_scale(steps, above, unit), colour, on_scale(steps, below, unit))
        below = above
        most = bytes_text(run["stats"]["nodes"][name]["peak"])
        legend.append((colour, name if last else f"{name}, at most {most}"))
    budget = f"budget of the {of_gpus(run)}: {bytes_text(budget_of(run))}"
    plot.limit(budget_of(run) / unit.size, budget)
    said = "; ".join([*(text for _, text in legend), budget])
    return figure(
        f"With {short(run)}", legend, plot.svg(f"Bytes on each node over the steps, with {short(run)}", said)
    )


def stacked(plot: Plot, unit: Unit, edges: Sequence[float], series: dict[str, list[float]]) -> None:
    """Bars from edge to edge, those of each quantity on those of the one before."""
    below = [0.0] * (len(edges) - 1)
    for number, values in enumerate(series.values()):
        above = [low + value for low, value in zip(below, values, strict=True)]
        plot.area(stairs(edges, above, unit), f"moved{number}", stairs(edges, below, unit))
        below = above


def stairs(edges: Sequence[float], values: Sequence[float], unit: Unit) -> list[Point]:
    """A flat piece from edge to edge for each value."""
    return [(edge, value / unit.size) for i, value in enumerate(values) for edge in edges[i : i + 2]]


def moved_within(run: Run, last: int) -> str:
    """Bytes that parts of the last steps moved."""
    first = max(0, len(run["steps"]) - last)
    rows = [i for i, step in enumerate(steps_of(run)) if step >= first]
    rows = rows[:: math.ceil(len(rows) / MOST_BARS)]
    samples = run["samples"]
    series = {
        name: [samples[key][after] - samples[key][before] for before, after in pairwise(rows)]
        for name, key in (("fetched", "bytes_fetched"), ("written back", "bytes_written_back"))
    }
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0)
    unit = bytes_unit(highest)
    plot = Plot(first, len(run["steps"]), HEADROOM * highest / unit.size, unit.name)
    stacked(plot, unit, [steps_of(run)[i] for i in rows], series)
    title = f"Bytes moved in every {samples['op'][rows[1]] - samples['op'][rows[0]]:,} operators"
    said = f"At most {unit.text(highest)} at a time"
    legend = [(f"moved{number}", name) for number, name in enumerate(series)]
    return figure(title, legend, plot.svg(f"{title}, with {short(run)}", said))


def moved(run: Run) -> str:
    """Bytes that each step moved."""
    kinds = {
        "fetched": "bytes_fetched",
        "written back": "bytes_written_back",
        "from GPU to GPU": "bytes_between",
    }
    series = {name: per_step(run, key) for name, key in kinds.items()}
    if not any(series["from GPU to GPU"]):
        del series["from GPU to GPU"]
    highest = max(map(sum, zip(*series.values(), strict=True)), default=0)
    unit = bytes_unit(highest)
    plot = Plot(1.5, len(run["steps"]) + 0.5, HEADROOM * highest / unit.size, unit.name)
    stacked(plot, unit, around_steps(run), series)
    texts = moved_texts(run)
    legend = [
        (f"moved{number}", f"{name}, {texts.get(name, bytes_text(0))} a step")
        for number, name in enumerate(series)
    ]
    title = f"Bytes moved in each step, with {short(run)}"
    return figure(
        title,
        legend,
        plot.svg(title, "; ".join(text for _, text in legend)),
        "From the second step on: the first one also makes the optimizer's state.",
    )


def around_steps(run: Run) -> list[float]:
    """Where each step begins and ends in a plot, from the second one on."""
    return [step + 1.5 for step in range(len(run["steps"]))]


def time(ample: Run, tight: Run) -> str:
    """How long each step took."""
    clock = clock_of(tight)
    longest = max(max(per_step(run, clock)) for run in (ample, tight))
    unit = seconds_unit(longest)
    plot = Plot(1.5, len(tight["steps"]) + 0.5, HEADROOM * longest / unit.size, unit.name)
    legend = []
    for colour, run in (("time1", tight), ("time0", ample)):
        plot.area(stairs(around_steps(run), per_step(run, clock), unit), colour)
        legend.append((colour, f"{short(run)}, {unit.text(typical(run, clock) or 0)}"))
    said = "; ".join(text for _, text in legend)
    whose = "By the simulated GPU's clock" if is_simulated(tight) else "By this computer's clock"
    if ample["stats"]["ops"] == tight["stats"]["ops"]:
        whose += ". Both ran the same operators, so what one takes longer is waiting for bytes"
    return figure("Time of each step", legend, plot.svg("Time of each step", said), f"{whose}.")


def loss(runs: Sequence[Run]) -> str:
    """Loss by step: equal lines lie on each other, so the later ones are thinner."""
    top = HEADROOM * max(max(run["losses"]) for run in runs)
    plot = Plot(1, len(runs[0]["losses"]), top, "nats")
    for number, run in enumerate(runs):
        plot.line(list(enumerate(run["losses"], start=1)), f"run{number}")
    first, last = runs[0]["losses"][0], runs[0]["losses"][-1]
    legend = [(f"run{number}", short(run)) for number, run in enumerate(runs)]
    return figure(
        "Loss",
        legend,
        plot.svg("Loss by step", f"It falls from {first:.3f} to {last:.3f} nats a character."),
        "Cross entropy a character. Three lines, each on top of the others where they are equal.",
    )
