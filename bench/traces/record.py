"""Writes the records of this directory: three training steps of each model of ``models.py``.

``innkeeper replay`` and ``bench/replay.py`` read them. Each model is a process of its own, on a simulated
GPU with memory for all and no data.

    python bench/traces/record.py
    python bench/traces/record.py --only lstm --out build
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.chosen import chosen, pattern

TRACES = Path(__file__).resolve().parent
STEPS = 3  # the first makes the optimizer's state, the other two are alike


def record(name: str, path: Path) -> None:
    """Records one model in this process."""
    import innkeeper
    from models import CASES

    with innkeeper.record(path) as recording:
        step = CASES[name].training(foreach=False)
        for _ in range(STEPS):
            step()
            recording.step()


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--only",
        type=pattern,
        default="",
        metavar="PATTERN",
        help="a regular expression that names must match",
    )
    parser.add_argument("--out", type=Path, default=TRACES, metavar="DIRECTORY")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        return record(args.case, args.out)
    from models import CASES

    console = Console(soft_wrap=True)
    args.out.mkdir(parents=True, exist_ok=True)
    settings = {"INNKEEPER_NODES": "sim:1TiB,host:2TiB", "INNKEEPER_SIM": "data=off"}
    for name in chosen(CASES, args.only, str):
        path = args.out / f"{name}.trace.gz"
        subprocess.run(
            [sys.executable, __file__, "--case", name, "--out", path], env=os.environ | settings, check=True
        )
        console.print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
