"""The cost of a small tensor among many, compared with plain PyTorch: host memory, and time of an operator.

An operator makes the given number of tensors of 64 bytes, which are kept. Each count and kind of node is a
process of its own, whose resident memory before and after is compared. A tensor's own 64 bytes are counted,
too. Then each tensor is written (``add_``) in an order that no processor can predict. With more tensors, less
of their bookkeeping is in the processor's caches; this holds for PyTorch's own tensors too.

    python bench/bookkeeping.py
    python bench/bookkeeping.py --counts 1000000 --json bookkeeping.json
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

NODES = {"plain": "", "host": "host:8GiB", "simulated GPU": "sim:1x8GiB,host:8GiB"}
WRITES = 100_000  # least number of timed writes
KEPT_BEFORE = 1000  # tensors, after which allocators and tables have their initial memory


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held(device: str, count: int) -> tuple[float, float]:
    """Bytes of this process for each of ``count`` tensors there, and nanoseconds of an operator on one."""
    import torch

    if device == "managed":
        import innkeeper  # noqa: F401

    one = torch.ones(16, device=device)
    before = [one + one for _ in range(KEPT_BEFORE)]
    kept: list[torch.Tensor | None] = [None] * count
    gc.collect()
    start = resident()
    for i in range(count):
        kept[i] = one + one
    grown = resident() - start
    del before
    torch.set_num_threads(1)
    random.Random(1).shuffle(kept)
    rounds = max(1, WRITES // count)
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        for _ in range(rounds):
            for tensor in kept:
                tensor.add_(1)
        best = min(best, (time.process_time() - begin) / (rounds * count))
    return grown / count, best * 1e9


def elsewhere(nodes: str, count: int) -> tuple[float, float]:
    """``held`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--counts", str(count), "--child", "managed" if nodes else "cpu"],
        env=os.environ | ({"INNKEEPER_NODES": nodes} if nodes else {}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{count} tensors on {nodes or 'the CPU'} failed:\n{done.stderr}")
    grown, nanoseconds = done.stdout.split()
    return float(grown), float(nanoseconds)


def main() -> None:
    """Prints a row for each count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="few tensors: to see that it works")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(*held(args.child, args.counts[0]))
        return
    if args.quick:
        args.counts = [2000]
    memory = Table("tensors", *NODES, title="bytes for each", caption="in brackets: beside plain PyTorch's")
    times = Table(
        "tensors", *NODES, title="an operator on one", caption="in brackets: of that with the fewest"
    )
    rows: dict[int, dict[str, tuple[float, float]]] = {}
    for count in args.counts:
        row = rows[count] = {name: elsewhere(nodes, count) for name, nodes in NODES.items()}
        plain = row["plain"][0]
        cells = [f"{row[name][0]:.0f} ({row[name][0] - plain:.0f})" for name in NODES if name != "plain"]
        memory.add_row(f"{count:,}", f"{plain:.0f}", *cells)
        few = rows[args.counts[0]]
        times.add_row(
            f"{count:,}", *(f"{row[name][1]:,.0f} ns ({row[name][1] / few[name][1]:.2f}x)" for name in NODES)
        )
    Console().print(memory, times)
    if args.json is not None:
        figures = {
            count: {name: {"bytes": pair[0], "nanoseconds": pair[1]} for name, pair in row.items()}
            for count, row in rows.items()
        }
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
