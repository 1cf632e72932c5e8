"""Compares planned with on-demand movement for programs whose training steps differ.

The script records each program of ``bench/traces/varied.py`` once for each seed, without data. It replays
the record on a simulated GPU with 90, 70 and 50 % of the program's peak memory. The table has ratios, planned
over on demand: ``time`` of all steps, ``later`` the time of steps 13 to 60, when the planner has tried its
plans, and ``bytes`` moved in both directions in those steps.

    python bench/variation.py
    python bench/variation.py --only GAN --seeds 1
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table
from support.chosen import chosen, pattern
from support.replayed import PROGRAM, replayed

TOP = Path(__file__).resolve().parent.parent
STEPS = 60
SETTLED = 12  # steps, after which a plan is to have been found, or given up
SHARES = (0.9, 0.7, 0.5)
MOST = {"time": 1.05, "later": 1.02, "bytes": 1.10}  # targets of each cell
Cell = dict[str, float]


def record(name: str, seed: int, path: Path) -> None:
    """Records one program in this process."""
    import innkeeper
    from varied import PROGRAMS

    import torch

    with torch.device("managed"):
        step = PROGRAMS[name](Random(seed))
    with innkeeper.record(path) as recording:
        for i in range(STEPS):
            with torch.autocast("managed", torch.bfloat16):
                step(i)
            recording.step()


def played(name: str, seed: int, directory: Path, program: Path) -> list[Cell | str]:
    """For each share the cost of plans, or the reason why it does not fit."""
    path = directory / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{seed}.trace"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        command = [sys.executable, __file__, "--record", name, str(seed), str(draft)]
        settings = {
            "INNKEEPER_NODES": "sim:1TiB,host:2TiB",
            "INNKEEPER_SIM": "data=off",
            "PYTHONPATH": os.pathsep.join([str(TOP / "bench" / "traces"), os.environ.get("PYTHONPATH", "")]),
        }
        subprocess.run(command, env=os.environ | settings, check=True)
        draft.replace(path)
    shares = ",".join(map(str, SHARES))
    found = replayed(path, "--as-recorded", "--share", shares, program=program)
    return [cell(row) for row in found["rows"]]


def cell(row: dict[str, Any]) -> Cell | str:
    """Planned over on demand."""
    if "failed" in row:
        return str(row["failed"])

    def times(keys: list[str], first: int = 0) -> float:
        planned, on_demand = (
            sum(s[key] for s in row[way][first:] for key in keys) for way in ("planned", "on_demand")
        )
        return planned / on_demand if on_demand else 1.0

    return {
        "time": times(["seconds"]),
        "later": times(["seconds"], SETTLED),
        "bytes": times(["bytes_in", "bytes_out"], SETTLED),
    }


def shown(found: Cell | str) -> str:
    """A cell of the table; values above the target are in bold."""
    if isinstance(found, str):
        return "-"
    texts = [f"[b]{found[key]:.2f}[/b]" if found[key] > MOST[key] else f"{found[key]:.2f}" for key in MOST]
    return " ".join(texts)


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", type=pattern, default="", metavar="PATTERN", help="of the names")
    parser.add_argument("--seeds", type=int, default=2, metavar="N")
    parser.add_argument(
        "--directory", type=Path, default=TOP / "build" / "variation", help="keeps the records"
    )
    parser.add_argument("--program", type=Path, default=PROGRAM, help="the innkeeper that plays them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="one program, to see that it works")
    parser.add_argument("--record", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        return record(args.record[0], int(args.record[1]), Path(args.record[2]))
    if args.quick:
        args.only, args.seeds = pattern("^fixed$"), 1
    sys.path.insert(0, str(TOP / "bench" / "traces"))
    from varied import PROGRAMS

    args.directory.mkdir(parents=True, exist_ok=True)
    cases = [(n, s) for n in chosen(PROGRAMS, args.only, str) for s in range(1, args.seeds + 1)]
    table = Table("program", "seed", *(f"{share:.0%}: {' '.join(MOST)}" for share in SHARES))
    results = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda case: played(*case, args.directory, args.program), cases)
        for (name, seed), cells in zip(cases, found, strict=True):
            table.add_row(name, str(seed), *map(shown, cells))
            results.append({"program": name, "seed": seed, "cells": cells})
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 140).print(table)
    over = sum(
        not isinstance(c, str) and any(c[k] > MOST[k] for k in MOST) for r in results for c in r["cells"]
    )
    print(f"{over} of {sum(len(r['cells']) for r in results)} cells have more than {MOST}")
    if args.json:
        args.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
