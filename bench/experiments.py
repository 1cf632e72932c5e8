"""Experiments side by side: threads of one process, each on a simulated GPU of its own that is too small.

Each trains the same GPT of 4 layers, width 256, in half of its peak, with one thread for its kernels. A round
is a number of steps of one experiment alone, then of all at once, in the other order in every second round.
Real time is the median of the rounds' ratios; simulated time is that of the slowest GPU. ``one GPU`` is the
same with all experiments on one GPU with as much memory as all together: there they take turns by kernel.

Targets on separate GPUs: at once each takes the simulated time that it takes alone, so that no copy waits for
another's kernels; and real time at most 1.3x of that of one alone, if each thread has a core. (Four threads
on two cores take twice of it by the cores alone.)

    python bench/experiments.py
    python bench/experiments.py --threads 4 --rounds 20 --json experiments.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.apart import found_apart

AMPLE = 512 << 20
ALIGNMENT = 64  # bytes; budgets are multiples of it
WARM_UP = 6  # steps, after which a plan is followed


def run(threads: int, gpus: int, rounds: int, steps: int) -> dict[str, float]:
    """In this process: seconds of a round, of one thread alone and of all at once."""
    import innkeeper
    from torch.nn import functional as F
    from train_text import GPT

    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    experiments = []
    for number in range(threads):
        with innkeeper.on(f"sim:{number % gpus}"):
            model = GPT(65, 64, 256, 4, 4, 0.0).to("managed")
            text = torch.randint(65, (8, 65)).to("managed")
        experiments.append((model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False), text))

    def train(number: int, count: int) -> None:
        model, optimizer, text = experiments[number]
        with innkeeper.on(f"sim:{number % gpus}"):
            for _ in range(count):
                loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    workers = [ThreadPoolExecutor(1) for _ in range(threads)]  # a thread each, for all of its steps

    def at_once(count: int) -> None:
        for done in [worker.submit(train, n, count) for n, worker in enumerate(workers)]:
            done.result()

    def timed(part: Callable[[], None]) -> tuple[float, float]:
        torch.accelerator.synchronize()
        real, simulated = time.perf_counter(), innkeeper.stats()["simulated_seconds"]
        part()
        torch.accelerator.synchronize()
        return time.perf_counter() - real, innkeeper.stats()["simulated_seconds"] - simulated

    def alone() -> None:
        workers[0].submit(train, 0, steps).result()

    at_once(WARM_UP)
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "at once": []}
    for number in range(rounds):
        order = [("alone", alone), ("at once", lambda: at_once(steps))]
        for name, part in order if number % 2 == 0 else reversed(order):
            found[name].append(timed(part))
    return {
        "real": statistics.median(b[0] / a[0] for a, b in zip(found["alone"], found["at once"], strict=True)),
        "alone": statistics.median(simulated for _, simulated in found["alone"]) / steps,
        "at once": statistics.median(simulated for _, simulated in found["at once"]) / steps,
        "peak": max(node["peak"] for name, node in innkeeper.stats()["nodes"].items() if name != "host"),
        "evictions": innkeeper.stats()["evictions"],
    }


def elsewhere(threads: int, gpus: int, space: int, rounds: int, steps: int) -> dict[str, float]:
    """``run`` in a process of its own, on GPUs with the given budget."""
    given = {"--threads": threads, "--rounds": rounds, "--steps": steps, "--gpus": gpus}
    words = [word for pair in given.items() for word in pair]
    nodes = f"sim:{gpus}x{space}B,host:4GiB"
    found: dict[str, float] = found_apart(*words, what=f"{threads} threads on {gpus} GPUs", nodes=nodes)
    return found


def main() -> None:
    """Runs all and prints their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2, help="experiments, and GPUs (2)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="of a round (4)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="one round of one step: to see that it works")
    parser.add_argument("--gpus", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.rounds = args.steps = 1
    if args.gpus is not None:
        print(json.dumps(run(args.threads, args.gpus, args.rounds, args.steps)))
        return
    peak = elsewhere(1, 1, AMPLE, 1, 1)["peak"]
    half = int(peak / 2) // ALIGNMENT * ALIGNMENT
    count = args.threads
    places = {
        f"{count} GPUs with room for all": (count, AMPLE),
        f"{count} GPUs of half the peak": (count, half),
        f"one GPU of half of {count} peaks": (1, half * count),
    }
    rows = {
        name: elsewhere(count, gpus, space, args.rounds, args.steps) for name, (gpus, space) in places.items()
    }
    cores = len(os.sched_getaffinity(0))
    table = Table(
        "where", "alone, ms", "at once, ms", "real, to alone", "wanted", title="a step of each experiment"
    )
    for name, row in rows.items():
        wanted = f"{row['alone'] * 1e3:.2f} ms, {1.3 * max(1, count / cores):.2f}x"
        table.add_row(
            name,
            f"{1e3 * row['alone']:.2f}",
            f"{1e3 * row['at once']:.2f}",
            f"{row['real']:.2f}x",
            "" if name.startswith("one GPU") else wanted,
        )
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
