"""Trains one model three times from one seed and compares: the weights must be equal for any memory size.

The runs of ``train_text.py``: plain PyTorch; the managed device with memory for all; the managed device with
40 % of the second run's peak. Without a GPU the managed runs use simulated ones.
Then a table, and a page to look at. Exits with 1 and one line if the weights differ or the loss did not fall.

    python examples/demo.py
    python examples/demo.py --fraction 0.3 --gpus 2 --steps 30
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import demo_page
from demo_report import peak_of, print_table

import torch

HERE = Path(__file__).resolve().parent


class DemoError(Exception):
    """The demo did not show its result; the message is one line."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options; unknown ones go to ``train_text.py``."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fraction", type=float, default=0.4, help="of the peak, for the third run")
    p.add_argument("--gpus", type=int, default=1, help="GPUs that share the memory of the third run")
    p.add_argument("--room", default="1GiB", help="of the one simulated GPU of the second run")
    p.add_argument("--host", default="2GiB", help="host memory beside simulated GPUs")
    p.add_argument("--simulate", action="store_true", help="simulate GPUs though there is a real one")
    p.add_argument("--page", type=Path, default=Path("build/demo.html"), help="the page to write")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seed", type=int, default=1)
    args, rest = p.parse_known_args(arguments)
    args.training = [*rest, "--steps", str(args.steps), "--seed", str(args.seed)]
    if not 0 < args.fraction <= 1:
        p.error(f"--fraction is above 0 and at most 1, got {args.fraction}")
    if args.steps < 2 or args.gpus < 1:
        p.error("--steps must be 2 or more, --gpus 1 or more")
    return args


def run(name: str, device: str, training: Sequence[str], nodes: str = "") -> dict[str, Any]:
    """Trains in a process of its own.

    Args:
        name: for the table and the plots.
        device: ``cpu``, ``cuda`` or ``managed``.
        training: options of ``train_text.py``.
        nodes: ``INNKEEPER_NODES`` for ``managed``.

    Returns:
        The output of ``demo_run.py``: losses, seconds, hash, steps; for ``managed`` statistics and samples.

    Raises:
        DemoError: the process failed.

    """
    print(f"\n{name}" + (f": {nodes}" if nodes else ""), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        command = [
            sys.executable,
            str(HERE / "demo_run.py"),
            "--write",
            str(result),
            "--",
            "--device",
            device,
        ]
        # Threads that spin while they wait make a shared machine ten times slower.
        environment = {"OMP_WAIT_POLICY": "passive"} | os.environ | {"INNKEEPER_NODES": nodes}
        done = subprocess.run([*command, *training], env=environment, check=False)
        if done.returncode != 0:
            raise DemoError(f"the run '{name}' ended with exit code {done.returncode}")
        return {"name": name, "nodes": nodes, **json.loads(result.read_text())}


def three_runs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Plain, with memory for all, and with ``fraction`` of the second one's peak."""
    real = torch.cuda.is_available() and not args.simulate
    device = "cuda" if real else "cpu"
    plain = run("plain PyTorch", device, args.training)
    ample_nodes = "cuda:0,host" if real else f"sim:1x{args.room},host:{args.host}"
    ample = run("managed, room for all", "managed", args.training, ample_nodes)
    budget = int(peak_of(ample) * args.fraction) // args.gpus
    if real:
        nodes = ",".join([*(f"cuda:{n}:{budget}B" for n in range(args.gpus)), "host"])
    else:
        nodes = f"sim:{args.gpus}x{budget}B,host:{args.host}"
    tight = run(f"managed, {args.fraction * 100:g} % of the peak", "managed", args.training, nodes)
    if plain["sha256"] != ample["sha256"] == tight["sha256"]:
        plain = repeated(plain, device, args.training)
    return [plain, ample, tight]


def repeated(plain: dict[str, Any], device: str, training: Sequence[str]) -> dict[str, Any]:
    """The plain run, again: PyTorch's own runs on a busy machine do not always give the same bits.

    MKL may compute with another kernel while it starts (PyTorch issue 188792).
    """
    again = run(plain["name"], device, training)
    if again["sha256"] != plain["sha256"]:
        was, now = plain["sha256"][:12], again["sha256"][:12]
        print(f"Two runs of plain PyTorch differ, {was} and {now}: the second is compared with.")
    return again


def check(runs: Sequence[dict[str, Any]]) -> None:
    """Raises DemoError unless the weights are equal, the loss fell and the budget was kept."""
    hashes = {run["name"]: run["sha256"][:12] for run in runs}
    if len(set(hashes.values())) != 1:
        raise DemoError(f"the weights differ: {', '.join(f'{name} {h}' for name, h in hashes.items())}")
    first, last = runs[0]["losses"][0], runs[0]["losses"][-1]
    if last > 0.75 * first:
        raise DemoError(f"the last loss, {last:.3f}, is more than 75 % of the first, {first:.3f}")
    for name, node in runs[-1]["stats"]["nodes"].items():
        if node["peak"] > node["budget"]:
            raise DemoError(f"{name} held {node['peak']} bytes, more than its budget of {node['budget']}")
        if node["recount"] != node["resident"]:
            raise DemoError(
                f"{name} accounts for {node['resident']} bytes, and has given out {node['recount']}"
            )
    if peak_of(runs[-1]) < peak_of(runs[1]) and runs[-1]["stats"]["evictions"] == 0:
        raise DemoError("nothing was evicted, though not all fits")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, reports and checks; returns the exit code."""
    args = parse(arguments)
    try:
        runs = three_runs(args)
        print_table(runs)
        args.page.parent.mkdir(parents=True, exist_ok=True)
        called = ["python", "examples/demo.py", *(sys.argv[1:] if arguments is None else arguments)]
        args.page.write_text(demo_page.page(runs, called), encoding="utf-8")
        print(f"\nPage: {args.page.resolve()}")
        check(runs)
    except DemoError as error:
        print(f"demo failed: {error}", file=sys.stderr)
        return 1
    print("The three runs gave bitwise equal weights.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
