"""The gain from an input loop that copies batches ahead, on the simulator's clock: equal on every machine.

A training step of linear layers on batches of 1024 x 4096 floats (16 MiB), which come from the CPU: from
pageable memory, from page-locked memory, and from there with ``non_blocking=True``, also one batch ahead, as
loops for CUDA do. The program reads each loss. ``wanted`` is the longer of the kernels and the copy alone.
With one layer the copy takes longer than the kernels, so that a loop cannot hide it; with many layers there
is little to hide.

    python bench/input_loop.py
    python bench/input_loop.py --json input_loop.json --steps 50
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.apart import found_apart

ROWS, WIDTH = 1024, 4096
LAYERS = (1, 2, 8)
WAYS = {
    "pageable": "pageable",
    "pinned": "pinned",
    "asynchronous": "non_blocking",
    "ahead": "one ahead",
}


def seconds_of(way: str, layers: int, steps: int) -> dict[str, float]:
    """Simulated seconds of a step whose batches come in that way, of its kernels and of its copy alone."""
    import innkeeper

    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers))).to("managed")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.zeros(ROWS, WIDTH) for _ in range(4)]
    if way != "pageable":
        batches = [batch.pin_memory() for batch in batches]

    def train(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        loss.cpu()  # the program waits for each step, as loops that print the loss do

    def copied(n: int) -> torch.Tensor:
        return batches[n % len(batches)].to("managed", non_blocking=way in ("asynchronous", "ahead"))

    def loop() -> None:
        if way != "ahead":
            for n in range(steps):
                train(copied(n))
            return
        following = copied(0)
        for n in range(steps):
            batch, following = following, copied(n + 1)
            train(batch)

    def timed(work: Callable[[], object]) -> float:
        torch.accelerator.synchronize()
        start = innkeeper.stats()["simulated_seconds"]
        work()
        torch.accelerator.synchronize()
        return (innkeeper.stats()["simulated_seconds"] - start) / steps

    there = copied(0)
    train(there)
    return {
        "kernels": timed(lambda: [train(there) for _ in range(steps)]),
        "copy": timed(lambda: [copied(n) for n in range(steps)]),
        "seconds": timed(loop),
    }


def main() -> None:
    """Runs all cases and prints their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20, help="training steps that are measured")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="two training steps: to see that it works")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    steps = 2 if args.quick else args.steps
    if args.case is not None:
        print(json.dumps(seconds_of(args.case[0], int(args.case[1]), steps)))
        return
    rows = []
    for layers in LAYERS:
        for way, name in WAYS.items():
            found = found_apart(
                "--case", way, layers, "--steps", steps,
                what=name, nodes="sim:1x8GiB,host:8GiB", INNKEEPER_SIM="data=off",
            )  # fmt: skip
            wanted = max(found["kernels"], found["copy"])
            rows.append({"layers": layers, "batches": name, **found, "ratio": found["seconds"] / wanted})
    table = Table(
        "layers", "batches from", "step ms", "kernels ms", "copy ms", "step / wanted",
        title="a step on an A100 with PCIe 4, by the simulator's clock",
    )  # fmt: skip
    for row in rows:
        times = (f"{1e3 * row[key]:.2f}" for key in ("seconds", "kernels", "copy"))
        table.add_row(str(row["layers"]), row["batches"], *times, f"{row['ratio']:.2f}")
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
