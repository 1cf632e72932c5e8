"""A random walk: programs of real operators on `managed` against the same on plain CPU tensors, bit by bit.

    INNKEEPER_STEPS=100000 python tests/support/python/walk.py

Each program draws its nodes (one or two simulated ones, a host that may be small, a disk below it) and the
steps of one to three threads, which share tensors that none of them writes. It also draws the time at which
results become visible, and whether all is evicted after each operator. The first program's seed is
INNKEEPER_SEED, by default new; the next ones count on from it. A program that fails is shrunk, and printed
with its seed: with INNKEEPER_SEED it runs first.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import tempfile
import threading
import time
import traceback
import warnings
from dataclasses import dataclass

import innkeeper
import walk_steps
from accelerators import here
from walk_steps import STEPS, WEIGHTS, Pair, Worker, Wrong, compare

import torch

KiB = 1 << 10
SHRINK_SECONDS = 60
LEAST_BUDGET = 512 * KiB  # Memory of the largest operator, without pins.

Move = tuple[int, str, int, int, int]  # Thread, step, numbers.


@dataclass
class Program:
    seed: int
    nodes: str
    sim: str
    stress: str
    threads: int
    moves: list[Move]

    def text(self) -> str:
        lines = [f"INNKEEPER_SEED={self.seed} INNKEEPER_NODES={self.nodes} INNKEEPER_SIM={self.sim}"
                 f" INNKEEPER_STRESS={self.stress}"]  # fmt: skip
        return "\n".join(lines + [f"  thread {t}: {name}({a}, {b}, {c})" for t, name, a, b, c in self.moves])


def draw(seed: int, directory: str) -> Program:
    r = random.Random(seed)
    nodes = f"sim:{r.choice((1, 1, 2))}x{r.choice((512, 640, 1024))}KiB"
    nodes += r.choice(
        (",host:64MiB", f",host:1MiB,disk:{directory}:64MiB", f",host:2MiB,disk:{directory}:64MiB")
    )
    sim = r.choice(("late", "late", f"random:{seed}", "early"))
    stress = r.choice(("", "", "", "evict"))
    threads = r.choice((1, 1, 2, 3))
    names = [name for name in STEPS for _ in range(WEIGHTS[name])] + ["budget"]
    moves = [
        (r.randrange(threads), r.choice(names), *(r.randrange(1 << 16) for _ in range(3)))
        for _ in range(r.choice((60, 120, 200)))
    ]
    return Program(seed, nodes, sim, stress, threads, moves)


def change_budget(a: int, b: int) -> None:
    nodes = list(innkeeper.manager().nodes.values())
    node = nodes[a % len(nodes)]
    if node.kind != "disk":
        lowest = min(LEAST_BUDGET if node.kind in ("sim", "cuda") else 1 << 20, node.capacity)
        with contextlib.suppress(torch.OutOfMemoryError):  # Pins and running operators may not fit.
            innkeeper.manager().set_budget(node.name, lowest + b * 16 % (node.capacity - lowest + 1))


def run(program: Program) -> str | None:
    """Runs the program; returns the first failure, or None."""
    os.environ["INNKEEPER_SIM"], os.environ["INNKEEPER_STRESS"] = program.sim, program.stress
    gc.collect()
    innkeeper.configure(here(program.nodes))
    names = [name for name, node in innkeeper.manager().nodes.items() if node.kind != "disk"]
    shared = []
    for n in range(4):
        plain = torch.arange(500 + 900 * n, dtype=torch.float32) * (n + 1)
        shared.append(Pair(plain.to("managed"), plain))
    failures: list[str] = []

    def work(thread: int) -> None:
        worker = Worker(shared, names)
        at = 0
        try:
            for number, (owner, name, a, b, c) in enumerate(program.moves):
                if owner != thread or failures:
                    continue
                at = number
                if name == "budget":
                    change_budget(a, b)
                else:
                    STEPS[name](worker, a, b, c)
                if program.threads == 1:
                    innkeeper.manager().check_invariants()
            if not failures:
                for pair in worker.pairs:
                    compare(pair)
        except Exception as error:
            detail = str(error) if isinstance(error, Wrong) else traceback.format_exc()
            failures.append(f"thread {thread}, move {at}: {detail}")
        while worker.pairs:
            worker.drop(0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, program.threads)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    if not failures:
        try:
            for pair in shared:
                compare(pair)
            pair = None  # The last pair would otherwise outlive the loop.
            shared.clear()
            gc.collect()
            check_empty()
        except (Wrong, RuntimeError) as error:
            failures.append(f"at the end: {error}")
    return failures[0] if failures else None


def check_empty() -> None:
    """Checks that all tensors are gone: no bytes, pins or escapes are left."""
    innkeeper.manager().check_invariants()
    torch.managed.synchronize()
    stats = innkeeper.stats()
    left = {
        name: row
        for name, row in stats["nodes"].items()
        if row["resident"] or row["recount"] or row["pinned"]
    }
    if left or stats["escaped"]:
        raise Wrong(f"left behind: {left}, {stats['escaped']} escaped")


def shrink(program: Program) -> Program:
    """Leaves out parts of the program, as long as it fails without them."""
    deadline = time.monotonic() + SHRINK_SECONDS
    size = len(program.moves) // 2
    while size and time.monotonic() < deadline:
        at, shorter = 0, False
        while at < len(program.moves) and time.monotonic() < deadline:
            moves = program.moves[:at] + program.moves[at + size :]
            trial = Program(program.seed, program.nodes, program.sim, program.stress, program.threads, moves)
            if any(run(trial) for _ in range(1 if program.threads == 1 else 3)):
                program, shorter = trial, True
            else:
                at += size
        size = size if shorter and size > 1 else size // 2
    return program


def main() -> int:
    warnings.filterwarnings("ignore", message="An output with one or more elements was resized")
    torch.set_num_threads(1)
    seed = int(os.environ.get("INNKEEPER_SEED") or random.randrange(1 << 48))
    wanted = int(os.environ.get("INNKEEPER_STEPS") or 3000)
    steps = evictions = programs = 0
    with tempfile.TemporaryDirectory() as directory:
        while steps < wanted:
            program = draw(seed + programs, directory)
            settings = f"{program.nodes}, {program.sim}, {program.stress or 'no stress'}"
            print(f"seed {program.seed}: {len(program.moves)} steps, {program.threads} threads, {settings}")
            sys.stdout.flush()  # Printed even if it crashes.
            failure = run(program)
            if failure:
                print(f"FAILED: {failure}\nshrinking", flush=True)
                small = shrink(program)
                print(f"{small.text()}\n{run(small)}\nreplay: INNKEEPER_SEED={program.seed}")
                return 1
            steps += len(program.moves)
            evictions += innkeeper.stats()["evictions"]
            programs += 1
    print(f"{steps} steps in {programs} programs from seed {seed}, {evictions} evictions: no difference")
    return 0 if evictions else 1


if __name__ == "__main__":
    sys.modules["walk_steps"] = walk_steps
    sys.exit(main())
