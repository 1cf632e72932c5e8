"""The cost of an operator while a plan follows the program, in processor time of its thread.

A period of many small operators, between which two large tensors are used in turn; the simulated GPU has
memory for one of them. Four processes run the same program; in each round every one of them runs some
periods, the first of them changing from round to round. The table has the time of an operator, and the median
over the rounds of the difference to another process of the same round:

``fits``: there is memory for all, so nothing is recorded and nothing moves;
``on demand``: it does not fit, and there are no plans;
``told``: a plan is followed, on a GPU that reports its kernels' times, as no real one does;
``priced``: a plan is followed, on a GPU whose kernels are priced by their work, as a real one's are.

    python bench/followed.py
    python bench/followed.py --rounds 100
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

SMALL = 1000  # operators between two uses of a large tensor
WARM_UP = 12  # periods until the plan is settled
PERIODS = 3  # periods of a process in a round
NEARLY, ENOUGH = "sim:1x3MiB,host:64MiB", "sim:1x64MiB,host:64MiB"


@dataclass(frozen=True)
class Way:
    """One process, and the one that it is compared with."""

    nodes: str
    planning: str
    sim: str
    less: str | None


WAYS = {
    "fits": Way(ENOUGH, "on", "times=hidden", None),
    "on demand": Way(NEARLY, "off", "times=hidden", "fits"),
    "told": Way(NEARLY, "on", "times=told", "on demand"),
    "priced": Way(NEARLY, "on", "times=hidden", "told"),
}


def program() -> Callable[[], int]:
    """One period of the program, and how many operators it has."""
    import torch

    large = [torch.zeros(2 << 18, device="managed") for _ in range(2)]
    small = torch.zeros(8, 8, device="managed")
    weight = torch.zeros(8, 8, device="managed")

    def period() -> int:
        x = small
        for each in large:
            each.add_(1)
            for _ in range(SMALL // 4):
                x = torch.mm(x, weight)
                x = x + weight
                x = torch.relu(x)
                x = x * 2.0
        return 2 * (SMALL + 1)

    return period


def child(planned: bool) -> None:
    """Runs periods as often as a line on standard input says, and prints seconds for one operator."""
    import innkeeper

    import torch

    torch.set_num_threads(1)
    with torch.no_grad():
        period = program()
        for _ in range(WARM_UP):
            period()
        before = innkeeper.stats()["planned_periods"]
        done = 0
        print(flush=True)
        for line in sys.stdin:
            times = int(line)
            done += times
            start = time.thread_time()
            operators = sum(period() for _ in range(times))
            print((time.thread_time() - start) / operators, flush=True)
        followed = innkeeper.stats()["planned_periods"] - before
    if planned != (followed > 0.9 * done):
        raise SystemExit(f"{followed} of {done} periods were planned")


def answer(process: subprocess.Popen[str], line: str = "") -> str:
    """The next line that a child prints, after it was given one."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="the fewest rounds, to see that it works")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child in ("told", "priced"))
        return
    processes: dict[str, subprocess.Popen[str]] = {}
    for name, way in WAYS.items():
        settings = {
            "INNKEEPER_NODES": way.nodes,
            "INNKEEPER_PLANNING": way.planning,
            "INNKEEPER_SIM": way.sim,
        }
        command = [sys.executable, __file__, "--child", name]
        processes[name] = subprocess.Popen(
            command, env=os.environ | settings, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        answer(processes[name])  # It is warm.
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(2 if options.quick else options.rounds):
        names = list(WAYS)[number % len(WAYS) :] + list(WAYS)[: number % len(WAYS)]
        for name in names:
            found[name].append(float(answer(processes[name], f"{PERIODS}\n")))
    for name, process in processes.items():
        process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"{name} failed")
    print(f"{'':12}{'an operator':>12}    the difference")
    for name, way in WAYS.items():
        line = f"{name:12}{statistics.median(found[name]) * 1e9:9.0f} ns"
        if way.less is not None:
            pairs = zip(found[name], found[way.less], strict=True)
            more = statistics.median(mine - other for mine, other in pairs)
            line += f"    {more * 1e9:+.0f} ns to {way.less}"
        print(line)


if __name__ == "__main__":
    main()
