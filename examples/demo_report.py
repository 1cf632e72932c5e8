"""The results of the demo's runs, as numbers with units: for the terminal's table and for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

Run = dict[str, Any]
UNKNOWN = "-"
HASH, SHOWN = "SHA-256", 12  # the hash, and the number of its digits shown
TIMES = "\N{MULTIPLICATION SIGN}"


def is_accelerator(node: str) -> bool:
    """Whether the node is a GPU, real or simulated."""
    return node not in ("host", "disk")


def of_gpus(run: Run) -> str:
    """``"GPU"``, or how many."""
    count = sum(map(is_accelerator, run["stats"]["nodes"]))
    return "GPU" if count == 1 else f"{count} GPUs"


def short(run: Run) -> str:
    """The run's name, where it is clear that it is a managed one."""
    return run["name"].removeprefix("managed, ")


def peak_of(run: Run) -> int:
    """The most bytes that the run had on its accelerators, by ``stats()``."""
    return sum(node["peak"] for name, node in run["stats"]["nodes"].items() if is_accelerator(name))


def budget_of(run: Run) -> int:
    """The budget of its accelerators, in bytes."""
    return sum(node["budget"] for name, node in run["stats"]["nodes"].items() if is_accelerator(name))


def per_step(run: Run, key: str) -> list[float]:
    """How much ``key`` (of ``demo_run.COUNTERS``, or ``seconds``) grew from each step's end to the next's."""
    if any(key not in step for step in run["steps"]):
        return []
    return [after[key] - before[key] for before, after in pairwise(run["steps"])]


def typical(run: Run, key: str) -> float | None:
    """A step's growth of ``key``; None where the run cannot tell.

    The median one's. By the computer's own clock the fastest one's: other programs only make steps slower.
    """
    grown = per_step(run, key)
    choose = min if key == "seconds" else median
    return choose(grown) if grown else None


def is_simulated(run: Run) -> bool:
    """Whether a simulated GPU's clock was running."""
    return bool(run.get("stats", {}).get("simulated_seconds"))


def clock_of(run: Run) -> str:
    """The clock for the cost of less memory: the simulated GPU's, which other programs do not disturb."""
    return "simulated_seconds" if is_simulated(run) else "seconds"


def rounded(value: float | None) -> str:
    """Three digits that count, wherever a number is told: ``0.0391``, ``4.45``, ``1,234``; ``-`` for None."""
    if value is None:
        return UNKNOWN
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(decimals, 0), 4)}f}"


@dataclass(frozen=True)
class Unit:
    """A name, and how many of the smallest unit it is."""

    name: str
    size: float

    def number(self, value: float | None) -> str:
        """``"4.45"``; ``-`` for None."""
        return rounded(None if value is None else value / self.size)

    def text(self, value: float) -> str:
        """``"4.45 MiB"``, the space being one that does not break."""
        return f"{self.number(value)}\N{NO-BREAK SPACE}{self.name}"


_BYTES = (Unit("B", 1), Unit("KiB", 1 << 10), Unit("MiB", 1 << 20), Unit("GiB", 1 << 30))
_SECONDS = (Unit("µs", 1e-6), Unit("ms", 1e-3), Unit("s", 1))


def bytes_unit(*values: float | None) -> Unit:
    """The unit in which some numbers of bytes are read best beside each other."""
    return _fitting(_BYTES, values)


def bytes_text(value: float) -> str:
    """A number of bytes alone, in the unit that fits it."""
    return bytes_unit(value).text(value)


def moved_texts(run: Run) -> dict[str, str]:
    """A step's moves, by kind; from GPU to GPU only if there are any."""
    fetched, written, between = (
        typical(run, f"bytes_{kind}") or 0 for kind in ("fetched", "written_back", "between")
    )
    unit = bytes_unit(fetched, written)
    texts = {"fetched": unit.text(fetched), "written back": unit.text(written)}
    return texts | ({"from GPU to GPU": bytes_text(between)} if between else {})


def seconds_unit(*values: float | None) -> Unit:
    """The unit in which some times are read best beside each other."""
    return _fitting(_SECONDS, values)


def _fitting(units: Sequence[Unit], values: Sequence[float | None]) -> Unit:
    """The largest unit that leaves no number below 1, unless another would then have six digits."""
    known = [value for value in values if value] or [0.0]
    long = [unit for unit in units if max(known) < 100_000 * unit.size] or units[-1:]
    return next((unit for unit in reversed(long) if min(known) >= unit.size), long[0])


@dataclass(frozen=True)
class Row:
    """One quantity: its name, its unit, and a number for each run."""

    title: str
    unit: str
    cells: tuple[str, ...]


def rows(runs: Sequence[Run]) -> list[Row]:
    """The table. A run without the managed device has no bytes to tell."""

    def of_bytes(**quantities: Sequence[float | None]) -> list[Row]:
        """In one unit, so that they can be compared."""
        unit = bytes_unit(*(value for values in quantities.values() for value in values))
        return [
            Row(title.replace("_", " "), unit.name, tuple(unit.number(value) for value in values))
            for title, values in quantities.items()
        ]

    def of_seconds(title: str, key: str) -> Row:
        values = [typical(run, key) for run in runs]
        unit = seconds_unit(*values)
        return Row(title, unit.name, tuple(unit.number(value) for value in values))

    def counted(key: str) -> list[int | None]:
        return [run["stats"][key] if "stats" in run else None for run in runs]

    def of_counts(title: str, key: str) -> Row:
        return Row(title, "", tuple(UNKNOWN if n is None else f"{n:,}" for n in counted(key)))

    def ratios(title: str, key: str, base: Run) -> Row:
        values = [times_of(run, base, key) for run in runs]
        return Row(title, TIMES, tuple(map(rounded, values)))

    managed = [run if "stats" in run else None for run in runs]
    table = [
        Row("weights", HASH, tuple(run["sha256"][:SHOWN] for run in runs)),
        Row("last loss", "nats", tuple(f"{run['losses'][-1]:.4f}" for run in runs)),
        *of_bytes(
            peak_on_GPUs=[run and peak_of(run) for run in managed],
            budget_of_GPUs=[run and budget_of(run) for run in managed],
            peak_on_host=[run and run["stats"]["nodes"]["host"]["peak"] for run in managed],
        ),
        *of_bytes(fetched=counted("bytes_fetched"), written_back=counted("bytes_written_back")),
    ]
    if any(counted("bytes_between")):
        table += of_bytes(between_GPUs=counted("bytes_between"))
    table += [of_counts("evictions", "evictions"), of_counts("operators", "ops")]
    if any(is_simulated(run) for run in runs):
        table.append(of_seconds("step (simulated)", "simulated_seconds"))
        table.append(ratios("slowdown (simulated)", "simulated_seconds", runs[1]))
    table.append(of_seconds("step (computer)", "seconds"))
    table.append(ratios("slowdown (computer)", "seconds", runs[0]))
    return table


def times_of(run: Run, base: Run, key: str) -> float | None:
    """How many times as long as one of ``base`` the median step takes; None where a run cannot tell."""
    mine, other = typical(run, key), typical(base, key)
    return mine / other if mine is not None and other else None


def print_table(runs: Sequence[Run]) -> None:
    """One column a run, so that it fits a terminal."""
    table = Table(show_header=True, header_style="bold")
    table.add_column("run")
    table.add_column("unit")
    for run in runs:
        table.add_column(run["name"], justify="right")
    for row in rows(runs):
        table.add_row(row.title, row.unit, *row.cells)
    print()
    Console().print(table)
