"""Targets for the engine's bookkeeping and for its order of eviction, beside the measured values: a row each.

``bytes a block``: the heap bytes of a managed tensor of 64 bytes, less those of PyTorch's own, counted by the
allocator (mallinfo2) and not by Innkeeper. ``round trips``: growth of the process's resident memory while one
tensor of 1 MiB is written and evicted many times, after the first tenth of them. ``host peak``: bytes of a
training step with memory for half at the host, beside those that cannot be on the GPU. ``circle``: number of
ten equal blocks that are fetched in a pass that reads them in turn with memory for nine (by use alone all
ten).

    python bench/wanted.py
    python bench/wanted.py --only circle --json wanted.json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.apart import found_apart

MIB = 1 << 20


class Heap(ctypes.Structure):
    """The result of mallinfo2()."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def heap_in_use() -> int:
    """Bytes that malloc has handed out."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = Heap
    gc.collect()
    found = libc.mallinfo2()
    return found.uordblks + found.hblkhd


def resident() -> int:
    """Bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_a_block(count: int) -> float:
    """Of bookkeeping, beside PyTorch's own tensor."""
    import innkeeper

    import torch

    assert innkeeper.stats()["ops"] == 0

    def of(device: str) -> float:
        kept = [torch.ones(16, device=device) for _ in range(1000)]  # tables are there
        before = heap_in_use()
        kept += [torch.ones(16, device=device) for _ in range(count)]
        return (heap_in_use() - before) / count

    data = 64 + 16 + 64  # bytes of a plain tensor: malloc's word, the data, and the loss by alignment to 64
    return of("managed") - (of("cpu") - data)


def round_trips(count: int) -> float:
    """How far resident memory grows, in MiB."""
    import innkeeper

    import torch

    x = torch.ones(MIB // 4, device="managed")
    early = 0
    for number in range(count):
        x.add_(1)
        innkeeper.evict(x)
        if number == count // 10:
            early = resident()
    return (resident() - early) / MIB


def peaks(steps: int) -> dict[str, int]:
    """The peaks of the GPU and of the host while it trains."""
    import innkeeper
    from movement import step_of_a_gpt

    step = step_of_a_gpt()
    for _ in range(steps):
        step()
    nodes = innkeeper.stats()["nodes"]
    return {name: nodes[name]["peak"] for name in ("sim:0", "host")}


def circle(passes: int) -> float:
    """Fetches a pass of the last half of the passes."""
    import innkeeper

    import torch

    blocks = [torch.ones(MIB // 4, device="managed") for _ in range(10)]
    for number in range(passes):
        if number == passes // 2:
            torch.accelerator.synchronize()
            innkeeper.manager().reset_stats()
        for block in blocks:
            block.sum()
    return innkeeper.stats()["fetches"] / (passes - passes // 2)


def elsewhere(case: str, count: int, nodes: str, **settings: str) -> object:
    """The result of a case in a process of its own."""
    return found_apart("--case", case, "--count", count, what=case, nodes=nodes, **settings)


def host_peak(steps: int) -> float:
    """At half of the peak, beside the other half."""
    whole = elsewhere("peaks", steps, "sim:1x1GiB,host:4GiB", INNKEEPER_SIM="data=off")
    half = whole["sim:0"] // 2  # type: ignore[index]
    found = elsewhere("peaks", steps, f"sim:1x{half}B,host:4GiB", INNKEEPER_SIM="data=off")
    return found["host"] / (whole["sim:0"] - half)  # type: ignore[index]


CASES: dict[str, Callable[[int], object]] = {
    "bytes": bytes_a_block, "trips": round_trips, "peaks": peaks, "circle": circle,
}  # fmt: skip
GPU, NINE = "sim:1x256MiB,host:1GiB", f"sim:1x{9 * MIB + 65536}B,host:1GiB"


def main() -> None:
    """Runs all and prints their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="of the rows' names")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="few of each: to see that it works")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print(json.dumps(CASES[args.case](args.count)))
        return
    part = 100 if args.quick else 1
    blocks, trips, passes = 100_000 // part, 100_000 // part, 40
    rows: list[tuple[str, str, Callable[[], object]]] = [
        ("bytes a block, at the host", "300 at most", lambda: elsewhere("bytes", blocks, "host:1GiB")),
        (f"round trips: {trips:,} of 1 MiB", "0 MiB more", lambda: elsewhere("trips", trips, GPU)),
        ("host peak, of what is out", "1.1 at most", lambda: host_peak(12)),
        ("circle, fetches a pass without plans", "some 1 (LRU: 10)",
         lambda: elsewhere("circle", passes, NINE, INNKEEPER_PLANNING="off")),
        ("circle, fetches a pass with plans", "some 1 (LRU: 10)", lambda: elsewhere("circle", passes, NINE)),
    ]  # fmt: skip
    found = {name: (wanted, run()) for name, wanted, run in rows if re.search(args.only, name)}
    table = Table("figure", "wanted", "measured")
    for name, (wanted, measured) in found.items():
        table.add_row(name, wanted, f"{measured:.2f}")
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps({name: measured for name, (_, measured) in found.items()}, indent=1))


if __name__ == "__main__":
    main()
