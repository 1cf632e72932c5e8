"""What the process holds for a small tensor, beside what plain PyTorch holds for it: host memory, in bytes.

So many tensors of 64 bytes are made by an operator and kept. Each count and kind of node is a process of its
own; its resident memory before and after is compared. A tensor's own 64 bytes are counted, too.

    python bench/bookkeeping.py
    python bench/bookkeeping.py --counts 1000000 --json bookkeeping.json
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

NODES = {"plain": "", "host": "host:8GiB", "simulated GPU": "sim:1x8GiB,host:8GiB"}
KEPT_BEFORE = 1000  # tensors, after which allocators and tables have what they need to begin with


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held(device: str, count: int) -> float:
    """Bytes of this process for each of ``count`` tensors there."""
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
    return grown / count


def elsewhere(nodes: str, count: int) -> float:
    """``held`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--counts", str(count), "--child", "managed" if nodes else "cpu"],
        env=os.environ | ({"INNKEEPER_NODES": nodes} if nodes else {}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{count} tensors on {nodes or 'the CPU'} failed:\n{done.stderr}")
    return float(done.stdout)


def main() -> None:
    """Prints a row for each count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="few tensors: to see that it works")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(held(args.child, args.counts[0]))
        return
    if args.quick:
        args.counts = [2000]
    table = Table("tensors", *NODES, title="bytes for each", caption="in brackets: beside plain PyTorch's")
    rows = {}
    for count in args.counts:
        row = rows[count] = {name: elsewhere(nodes, count) for name, nodes in NODES.items()}
        cells = [f"{row[name]:.0f} ({row[name] - row['plain']:.0f})" for name in NODES if name != "plain"]
        table.add_row(f"{count:,}", f"{row['plain']:.0f}", *cells)
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
