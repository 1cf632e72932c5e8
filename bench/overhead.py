"""What the managed device costs where all fits, per small operator and training step, against plain PyTorch.

One thread. Each row is measured in rounds; in a round plain and managed run one after the other, the first of
them changing from round to round, so that a slow moment of the machine meets both. The ratio is the median of
the rounds' ratios. The managed device is the host node here; a second process measures a simulated GPU in the
same way.

    python bench/overhead.py
    python bench/overhead.py --json overhead.json --rounds 50
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import torch
from torch import Tensor, nn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SIDES = {"8x8": 8, "4k": 64, "1M": 1024}
OPERATORS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "mm": torch.mm,
    "relu": lambda x, y: torch.relu(x),
    "sum": lambda x, y: x.sum(),
    "add_": lambda x, y: x.add_(y),
}
CAPTION = (
    "A time is the median over the rounds, and in brackets what nine of ten rounds stay below. "
    "To plain: managed time by plain time of the same round, the median over rounds; 1.00x costs nothing. "
    "The simulated GPU is measured in a process of its own, beside plain PyTorch there. "
    "Lists: time for one tensor of the list."
)
LISTS = (500, 4000)  # tensors of a list
ROUND_SECONDS = 0.004  # so long does plain PyTorch run in a round: many small calls, or one large one


@dataclass
class Row:
    """One case: seconds for one call, over the rounds."""

    name: str
    plain_median: float
    plain_p90: float
    managed_median: float
    managed_p90: float
    ratio: float


def seconds(call: Callable[[], Any], times: int) -> float:
    """Mean seconds of one of ``times`` calls."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def compare(name: str, plain: Callable[[], Any], managed: Callable[[], Any], rounds: int) -> Row:
    """Measures both in ``rounds`` paired rounds, after a warm-up."""
    for call in (plain, managed):
        seconds(call, 3)
    times = max(1, int(ROUND_SECONDS / seconds(plain, 3)))
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for which in order:
            measured[which].append(seconds((plain, managed)[which], times))
    ratio = statistics.median(m / p for p, m in zip(*measured, strict=True))
    medians = [statistics.median(values) for values in measured]
    p90s = [statistics.quantiles(values, n=10)[-1] for values in measured]
    return Row(name, medians[0], p90s[0], medians[1], p90s[1], ratio)


def operator_rows(rounds: int) -> Iterator[Row]:
    """Each operator at each size, float32."""
    for size, side in SIDES.items():
        for name, operator in OPERATORS.items():
            calls = []
            for device in ("cpu", "managed"):
                x, y = (torch.full((side, side), 1e-3, device=device) for _ in range(2))
                calls.append(lambda x=x, y=y, operator=operator: operator(x, y))
            yield compare(f"{name} {size}", calls[0], calls[1], rounds)


def list_rows(rounds: int) -> Iterator[Row]:
    """An operator over a list, out of place, per tensor: the same for short lists and long ones."""
    for count in LISTS:
        calls = []
        for device in ("cpu", "managed"):
            tensors = [torch.full((8, 8), 1e-3, device=device) for _ in range(count)]
            calls.append(lambda tensors=tensors: torch._foreach_add(tensors, 1))
        row = compare(f"add, lists of {count}, a tensor", calls[0], calls[1], rounds)
        times = {key: value / count for key, value in asdict(row).items() if key not in ("name", "ratio")}
        yield replace(row, **times)


def training_row(rounds: int) -> Row:
    """One step of a GPT of 4 layers, width 128, batch 4 x 64, AdamW."""
    sys.path.insert(0, str(EXAMPLES))
    from train_text import GPT

    def stepper(device: str) -> Callable[[], None]:
        torch.manual_seed(0)
        model = GPT(characters=103, context=64, width=128, layers=4, heads=4, dropout=0.0).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        text = torch.randint(103, (4, 65)).to(device)

        def step() -> None:
            optimizer.zero_grad()
            logits = model(text[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()

        return step

    return compare("GPT step (4 x 128)", stepper("cpu"), stepper("managed"), rounds)


def measure(rounds: int) -> list[Row]:
    """All rows, on the nodes that INNKEEPER_NODES names."""
    import innkeeper  # noqa: F401

    torch.set_num_threads(1)
    with torch.no_grad():
        rows = [*operator_rows(rounds), *list_rows(rounds)]
    return [*rows, training_row(rounds)]


def measure_elsewhere(nodes: str, rounds: int) -> list[Row]:
    """``measure`` in a process of its own, on these nodes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, __file__, "--child", str(path), "--rounds", str(rounds)]
        subprocess.run(command, env=os.environ | {"INNKEEPER_NODES": nodes}, check=True)
        return [Row(**row) for row in json.loads(path.read_text())]


def time_text(value: float) -> str:
    """Nanoseconds, microseconds or milliseconds."""
    if value < 1e-5:
        return f"{value * 1e9:,.0f} ns"
    return f"{value * 1e6:,.1f} us" if value < 1e-2 else f"{value * 1e3:,.1f} ms"


def print_table(host: Sequence[Row], simulated: Sequence[Row]) -> None:
    """Median and 90th percentile of each, and the ratios."""
    table = Table("case", title="Time of one call, on one thread", caption=CAPTION, caption_justify="left")
    for title in ("plain PyTorch", "managed, host", "to plain", "managed, simulated GPU", "to plain"):
        table.add_column(title, justify="right")
    for row, sim in zip(host, simulated, strict=True):
        cells = [
            f"{time_text(median)} ({time_text(p90)})"
            for median, p90 in (
                (row.plain_median, row.plain_p90),
                (row.managed_median, row.managed_p90),
                (sim.managed_median, sim.managed_p90),
            )
        ]
        table.add_row(row.name, cells[0], cells[1], f"{row.ratio:.2f}x", cells[2], f"{sim.ratio:.2f}x")
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures both kinds of node, prints the table, and writes the figures if asked."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--quick", action="store_true", help="the fewest rounds, to see that it works")
    p.add_argument("--host", default="host:2GiB")
    p.add_argument("--simulated", default="sim:1x1GiB,host:2GiB")
    p.add_argument("--json", type=Path, help="write the figures to this file")
    p.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args(arguments)
    if args.quick:
        args.rounds = 2
    if args.child is not None:
        args.child.write_text(json.dumps([asdict(row) for row in measure(args.rounds)]))
        return
    host = measure_elsewhere(args.host, args.rounds)
    simulated = measure_elsewhere(args.simulated, args.rounds)
    print_table(host, simulated)
    if args.json is not None:
        figures = {"host": [asdict(row) for row in host], "simulated": [asdict(row) for row in simulated]}
        args.json.write_text(
            json.dumps({"torch": torch.__version__, "rounds": args.rounds} | figures, indent=1)
        )


if __name__ == "__main__":
    main()
