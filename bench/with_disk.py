"""Training that fits neither a GPU nor the host's memory, beside a disk, by the wall's clock.

The small models of ``bench/with_data.py``: on a simulated GPU with 45 % of their peak and a host with 25 %,
the rest on a disk; and on a host that computes, with 60 % and no GPU. Each case is a process of its own.
Times are those of a step after those in which plans are made, in multiples of a step with memory for all.
``on demand`` is without plans. Every way has the losses of the run with memory for all, to the bit.

``--disk`` sets how slow the disk is (a library takes that time at each read and write of the spill file). A
simulated GPU computes on a processor, some hundred times slower than the GPU would. A disk that is slower by
the same factor shows which moves the kernels hide. 0: the machine's own disk.

    python bench/with_disk.py
    python bench/with_disk.py --only opt --disk 200
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from support.apart import found_apart
from support.on_the_clock import WARM_UP
from with_data import GPU, MODELS, check_losses, training

SOURCE = Path(__file__).resolve().parent / "support" / "slow_disk.c"
GPU_SHARE, BELOW_SHARE, HOST_SHARE = 0.45, 0.25, 0.6  # parts of the peak
WAYS = {"on demand": "off", "planned": "on"}


def train(name: str, steps: int) -> dict[str, Any]:
    """The time of a step, in this process."""
    import innkeeper

    import torch

    torch.set_num_threads(1)  # the other processor is the disk's
    step = training(name)
    losses, seconds = [], []
    for _ in range(WARM_UP + steps):
        began = time.perf_counter()
        losses.append(step().item())  # item() waits for all work of the step
        seconds.append(time.perf_counter() - began)
    nodes = innkeeper.stats()["nodes"]
    return {
        "seconds": sorted(seconds[WARM_UP:])[steps // 2],
        "peak": max(node["peak"] for node in nodes.values() if node["ops"]),
        "spilled": nodes.get("disk", {}).get("peak", 0),
        "losses": losses,
    }


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=MODELS, help="one of the models")
    parser.add_argument(
        "--disk", type=float, default=400, help="MB/s, to it and from it; 0: as fast as it is"
    )
    parser.add_argument("--steps", type=int, default=12, help="that are measured")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="one small model: to see that it works")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(train(args.case, args.steps)))
        return
    if args.quick:
        args.only, args.steps = "demo", 2
    table = Table("model", "memory", *WAYS, "on disk")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        settings = {"INNKEEPER_SIM": GPU}
        if args.disk > 0:
            library = Path(directory) / "slow_disk.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", SOURCE, "-o", library, "-ldl"], check=True)
            settings |= {"LD_PRELOAD": str(library), "SLOW_DISK": str(args.disk * 1e6)}

        def run(name: str, nodes: str, **more: str) -> dict[str, Any]:
            words = ("--case", name, "--steps", args.steps)
            return dict(found_apart(*words, what=f"{name} on {nodes}", nodes=nodes, **settings, **more))

        for name in [args.only] if args.only else MODELS:
            ample = {"gpu": "sim:2GiB,host:4GiB", "host": "host:4GiB"}
            for kind, nodes in ample.items():
                whole = run(name, nodes)
                peak = whole["peak"]
                above = f"sim:{int(GPU_SHARE * peak)}B,host:{int(BELOW_SHARE * peak)}B"
                memory = above if kind == "gpu" else f"host:{int(HOST_SHARE * peak)}B"
                nodes = f"{memory},disk:{directory}:8GiB"
                found = {way: run(name, nodes, INNKEEPER_PLANNING=on) for way, on in WAYS.items()}
                check_losses(found, whole, f"{name} on {nodes}")
                times = [f"{row['seconds'] / whole['seconds']:.2f}x" for row in found.values()]
                table.add_row(name, kind, *times, f"{found['planned']['spilled'] / peak:.0%}")
                rows.append({"model": name, "memory": nodes, "whole": whole, **found})
    Console(soft_wrap=True, width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
