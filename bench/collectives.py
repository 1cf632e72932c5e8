"""The cost of an all-reduce of managed tensors, compared with Gloo on CPU tensors in the same processes.

Two processes on this machine, one process group. Each round runs both kinds one after the other, so that both
see the same load. On the host node Gloo gets the bytes in place. From a simulated GPU, where an operator has
written them, they are copied to the host first, and back when an operator needs them there.

    python bench/collectives.py
    python bench/collectives.py --json collectives.json --rounds 50
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
from pathlib import Path

from rich.console import Console
from rich.table import Table

KIB = 1 << 10
SIZES = (4 * KIB, 64 * KIB, KIB * KIB, 16 * KIB * KIB, 64 * KIB * KIB)  # bytes
NODES = {"host": "host:2GiB", "simulated GPU": "sim:512MiB,host:2GiB"}


def shown(nbytes: int) -> str:
    """``64 KiB``, ``16 MiB``."""
    return f"{nbytes >> 20} MiB" if nbytes >= KIB * KIB else f"{nbytes >> 10} KiB"


def worker(rounds: int, out: Path) -> None:
    """One of the processes: writes seconds by size and device, if it is the first."""
    import innkeeper  # noqa: F401

    import torch
    import torch.distributed as dist

    dist.init_process_group()
    times: dict[int, dict[str, list[float]]] = {}
    for nbytes in SIZES:
        tensors = {device: torch.ones(nbytes // 4, device=device) for device in ("cpu", "managed")}
        taken: dict[str, list[float]] = {device: [] for device in tensors}
        for round_ in range(rounds + 3):
            for device, x in tensors.items():
                x.mul_(1)  # written where the operators run, as a gradient is
                torch.accelerator.synchronize()
                dist.barrier()
                start = time.perf_counter()
                dist.all_reduce(x, op=dist.ReduceOp.MAX)  # MAX leaves the values unchanged
                torch.accelerator.synchronize()
                if round_ >= 3:
                    taken[device].append(time.perf_counter() - start)
        if not all((x == 1).all().item() for x in tensors.values()):
            raise SystemExit("an all-reduce gave a wrong sum")
        times[nbytes] = taken
    if dist.get_rank() == 0:
        out.write_text(json.dumps(times))
    dist.destroy_process_group()


def measured(nodes: str, rounds: int) -> list[dict[str, float]]:
    """One row for each size: medians in seconds, and the median of the rounds' ratios."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "times.json"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        done = subprocess.run(
            [*torchrun, __file__, "--worker", str(out), "--rounds", str(rounds)],
            env=os.environ | {"INNKEEPER_NODES": nodes, "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not out.exists():
            raise SystemExit(f"{nodes} failed:\n{done.stderr}")
        times = json.loads(out.read_text())
    rows = []
    for nbytes, taken in times.items():
        ratios = [ours / plain for ours, plain in zip(taken["managed"], taken["cpu"], strict=True)]
        rows.append(
            {
                "bytes": int(nbytes),
                "plain": statistics.median(taken["cpu"]),
                "managed": statistics.median(taken["managed"]),
                "ratio": statistics.median(ratios),
            }
        )
    return rows


def main() -> None:
    """Runs each configuration and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="of each size (60)")
    parser.add_argument("--quick", action="store_true", help="three rounds: to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    if options.worker is not None:
        worker(rounds, options.worker)
        return
    table = Table(title="all-reduce of two processes on one machine")
    for column in ("where", "size", "Gloo, plain", "managed", "to plain"):
        table.add_column(column, justify="left" if column == "where" else "right")
    found = {}
    for name, nodes in NODES.items():
        found[name] = measured(nodes, rounds)
        for row in found[name]:
            plain, managed = (f"{row[which] * 1e6:,.0f} us" for which in ("plain", "managed"))
            table.add_row(name, shown(int(row["bytes"])), plain, managed, f"{row['ratio']:.2f}x")
    Console().print(table)
    print("Times are medians; to plain is the median of the rounds' own ratios.")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
