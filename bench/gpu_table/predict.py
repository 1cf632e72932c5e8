"""Predicts the table's rows of Innkeeper from its cost model, for docs/gpu-results.md: no GPU is needed.

Records three steps of each workload without data on a simulated GPU with memory for all, and plays the record
by ``innkeeper replay`` at the workload's caps. A row has the step's kernels in ms, and for each way the share
of the full speed: the kernels' time divided by the step's. Beside Innkeeper's ways stand the rules of
``innkeeper replay`` for other ways, ``-`` if a rule does not fit. AdamW's step is recorded for each tensor,
as a record requires; the table's own is fused.

    python bench/gpu_table/predict.py
    python bench/gpu_table/predict.py --only T1 --gpu H100
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # The directory where this package lies.

from rich.console import Console
from support.replayed import replayed

import torch
from gpu_table.program import Program
from gpu_table.workloads import GIB, WORKLOADS, Workload

TRACES = Path(__file__).resolve().parents[2] / "build" / "gpu_table"
STEPS = 3  # The first makes the optimizer's state, the other two are alike.
WAYS = {  # Column: its key in the output of innkeeper replay.
    "on demand": "on_demand",
    "planned": "planned",
    "planned with recompute": "recompute",
    "rule: optimizer at the host": "optimizer",
    "rule: modules at the host": "modules",
    "rule: activations at the host": "activations",
}


def record(work: Workload, path: Path) -> None:
    """Records a workload in this process."""
    import innkeeper

    program = Program(work, None, "managed")
    program.build()
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=1e-4, foreach=False)
    with innkeeper.record(path) as recording:
        for _ in range(STEPS):
            program.step()
            recording.step()


def recorded(work: Workload, args: argparse.Namespace) -> Path:
    """The record of a workload, made in a process of its own."""
    path = TRACES / f"{work.name}.trace"
    TRACES.mkdir(parents=True, exist_ok=True)
    settings = {
        "INNKEEPER_NODES": "sim:1TiB,host:2TiB",
        "INNKEEPER_SIM": f"data=off,gpu={args.gpu},link={args.link}",
    }
    command = [sys.executable, __file__, "--record", work.name, *(["--quick"] if args.quick else [])]
    subprocess.run([*command, "--out", path], env=os.environ | settings, check=True)
    return path


def played(path: Path, shares: list[float], args: argparse.Namespace) -> dict[str, Any]:
    """The output of ``innkeeper replay`` for a record at these shares of its peak."""
    parts = ",".join(f"{share:.6f}" for share in shares)
    return replayed(path, "--gpu", args.gpu, "--link", args.link, "--share", parts)


def rows(work: Workload, args: argparse.Namespace) -> list[str]:
    """A workload's rows: one for each cap."""
    path = recorded(work, args)
    peak = played(path, [0.9], args)["peak"]
    caps = [0.6 * peak / GIB] if args.quick else list(work.caps)
    found = played(path, [min(1.0, cap * GIB / peak) for cap in caps], args)
    kernels = found["kernel_seconds"]
    lines = []
    for cap, row in zip(caps, found["rows"], strict=True):
        ways = [row.get(key, {}) for key in WAYS.values()]
        shares = [f"{kernels / way['seconds']:.2f}" if "seconds" in way else "-" for way in ways]
        needs = f"{peak / GIB:.1f} GiB"
        lines.append(f"| {work.name} | {cap:g} GiB | {needs} | {1e3 * kernels:,.0f} | {' | '.join(shares)} |")
    return lines


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PATTERN", help="the workloads whose names match")
    parser.add_argument("--gpu", default="H200", help="a GPU that the simulator knows")
    parser.add_argument("--link", default="PCIe 5 x16", help="its link to the host")
    parser.add_argument("--quick", action="store_true", help="the smallest shape of T1: to see that it works")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        work = WORKLOADS[args.record]
        return record(work.small() if args.quick else work, args.out)
    chosen = [WORKLOADS["T1"].small()] if args.quick else [w for w in WORKLOADS.values() if w.caps]
    console = Console(stderr=True, soft_wrap=True)
    print(f"| workload | cap | peak without a cap | kernels / ms | {' | '.join(WAYS)} |")
    print(f"|{'---|' * (4 + len(WAYS))}")
    for work in chosen:
        if re.search(args.only, work.name):
            with console.status(work.name):
                print("\n".join(rows(work, args)), flush=True)


if __name__ == "__main__":
    main()
