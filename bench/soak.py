#!/usr/bin/env python3
"""Trains for the given time, as real programs do, and looks for leaks and differences from plain PyTorch.

    python bench/soak.py --minutes 60

Each round trains a language model and a convolutional one on batches of another shape, and their twins on
plain CPU; evaluates them; throws an exception in the middle of a backward pass; makes a model, trains it and
drops it; and starts threads that use the shared weights and end. After every ten rounds without any query,
only the two models and their optimizers may be left: blocks, bytes, pins, escapes, file descriptors and
threads are counted exactly. The host must never have held much more than the living bytes. All weights and
the optimizers' state are compared with the twins', bit by bit. At the end the process's memory must not have
grown. With --quick it ends after twenty rounds, and does not judge memory.

Exits with 1 at the first leak or difference, and names it.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import statistics
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support" / "python"))

import innkeeper  # noqa: E402
import models  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

COMPARE_EVERY = 10  # rounds; between them nothing asks for statistics, since that cleans up
MOST_ON_HOST = 2.0  # multiple of all living bytes: the models, and the bytes that the accelerators hold
WARM_UP = 0.25  # part of the time: caches fill, allocators find their size
MOST_GROWTH_MIB = 16.0  # growth from the median after warm-up to the one at the end
MOST_SLOPE_MIB = 16.0  # an hour, for runs that are long enough to have a slope
SLOPE_MINUTES = 30  # shorter runs have none
GROWTH_MINUTES = 1  # shorter runs have hardly warmed up


class Broken(Exception):
    """A leak or a difference that the soak found."""


class Pause(torch.autograd.Function):
    """Raises in backward when it is told to."""

    armed = False

    @staticmethod
    def forward(context, x: Tensor) -> Tensor:
        """Copies."""
        return x.clone()

    @staticmethod
    def backward(context, gradient: Tensor) -> Tensor:
        """Copies, or raises."""
        if Pause.armed:
            raise KeyError("in the middle of backward")
        return gradient.clone()


class Twin:
    """A model on managed, the same on the CPU, and the optimizers of both."""

    def __init__(self, make, optimizer) -> None:
        torch.manual_seed(1)
        self.plain: nn.Module = make()
        self.ours: nn.Module = make()
        self.ours.load_state_dict(self.plain.state_dict())
        self.ours.to("managed")
        self.optimizers = [optimizer(m.parameters()) for m in (self.ours, self.plain)]

    def step(self, seed: int, inputs: Tensor, targets: Tensor, poisoned: bool = False) -> None:
        """One step of both on the same batch; a poisoned one dies in backward and changes no weight."""
        for model, optimizer in zip((self.ours, self.plain), self.optimizers, strict=True):
            device = next(model.parameters()).device
            torch.manual_seed(seed)
            output = Pause.apply(model(inputs.to(device)))
            loss = F.cross_entropy(output.flatten(0, -2), targets.to(device).flatten())
            optimizer.zero_grad()
            if poisoned:
                Pause.armed = True
                try:
                    (loss + output.square().mean() * 0).backward()
                    raise Broken("the exception in backward was swallowed")
                except KeyError:
                    pass
                Pause.armed = False
                continue
            loss.backward()
            optimizer.step()

    def evaluate(self, inputs: Tensor) -> None:
        """Both models, without gradients; their outputs must be equal."""
        results = []
        for model in (self.ours, self.plain):
            model.eval()
            with torch.no_grad():
                results.append(model(inputs.to(next(model.parameters()).device)).cpu())
            model.train()
        if not torch.equal(*results):
            raise Broken("an evaluation differs from plain PyTorch's")

    def tensors(self) -> list[tuple[str, Tensor, Tensor]]:
        """Weights, buffers and optimizers' state: name, managed, plain."""
        rows = list(zip(self.ours.state_dict().items(), self.plain.state_dict().values(), strict=True))
        found = [(name, a, b) for (name, a), b in rows]
        states = (optimizer.state.values() for optimizer in self.optimizers)
        for n, (a, b) in enumerate(zip(*states, strict=True)):
            found += [(f"{key} of parameter {n}", a[key], b[key]) for key in a if isinstance(a[key], Tensor)]
        return found

    def compare(self) -> None:
        """All of them must be equal, bit by bit."""
        for name, ours, plain in self.tensors():
            if not torch.equal(ours.detach().cpu(), plain.detach()):
                raise Broken(f"{name} differs from plain PyTorch's")


def language(r: random.Random) -> tuple[Tensor, Tensor]:
    """Tokens and the next token of each, of a drawn shape."""
    data = torch.Generator().manual_seed(r.randrange(1 << 32))
    tokens = torch.randint(0, 96, (r.randint(1, 5), r.randint(4, 40) + 1), generator=data)
    return tokens[:, :-1], tokens[:, 1:]


def images(r: random.Random) -> tuple[Tensor, Tensor]:
    """Images and labels, of a drawn shape."""
    data = torch.Generator().manual_seed(r.randrange(1 << 32))
    count, size = r.randint(2, 6), r.choice((12, 16, 20))
    return torch.randn(count, 3, size, size, generator=data), torch.randint(0, 10, (count,), generator=data)


def convolutional() -> nn.Module:
    """A small model with batch norm."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        *(models.Residual(16) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def create_and_drop(r: random.Random) -> None:
    """A model that is made, trained, pinned in part, and gone."""
    width = r.choice((16, 48, 96))
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to("managed")
    optimizer = torch.optim.AdamW(model.parameters(), fused=r.random() < 0.5)
    x = torch.randn(r.randint(1, 64), width).to("managed")
    for _ in range(2):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    innkeeper.pin(model[0].weight)  # the block dies pinned
    innkeeper.prefetch(model[2].weight, "sim:1")


def threads_come_and_go(r: random.Random, model: nn.Module, count: int) -> None:
    """Experiments in threads of their own, which read the shared model."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with innkeeper.experiment(memory=1 << 16):
                torch.manual_seed(seed)
                x = torch.rand(64, 64, device="managed")
                for _ in range(4):
                    x = torch.tanh(x @ x.t() / 64)
                with torch.no_grad():
                    model(torch.randint(0, 96, (1, 8)).to("managed"))
                if not bool(x.isfinite().all()):
                    raise Broken("a thread computed what is not finite")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(r.randrange(1 << 30),)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def resident_mib() -> float:
    """The process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def count_what_is_left(twins: list[Twin]) -> dict[str, int]:
    """Exact counts, once all that lives has left the accelerators."""
    for optimizer in (optimizer for twin in twins for optimizer in twin.optimizers):
        optimizer.zero_grad()
    gc.collect()
    for twin in twins:
        for _, ours, _ in twin.tensors():
            if ours.device.type == "managed":
                innkeeper.evict(ours)
    torch.managed.synchronize()
    innkeeper.manager().check_invariants()
    stats = innkeeper.stats()
    nodes = stats["nodes"]
    left = {
        "blocks": torch.accelerator.memory_stats()["allocation.all.current"],
        "escapes": stats["escaped"],
        "file descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "pinned bytes": sum(row["pinned"] for row in nodes.values()),
        "replicas' bytes": sum(row["replicas"] for row in nodes.values()),
        "bytes in use": sum(row["resident"] for row in nodes.values()),
        "bytes by a recount": sum(row["recount"] for row in nodes.values()),
    }
    return left


def slope(times: list[float], values: list[float]) -> float:
    """MiB an hour, by least squares."""
    if len(times) < 3:
        return 0.0
    return statistics.linear_regression(times, values).slope * 3600


def soak(minutes: float, seed: int) -> None:
    """The rounds. Raises Broken."""
    r = random.Random(seed)
    twins = [
        Twin(lambda: models.Gpt(layers=2), lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=True)),
        Twin(convolutional, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, foreach=True)),
    ]
    draws = (language, images)
    start, rounds, said = time.monotonic(), 0, 0.0
    before: dict[str, int] | None = None
    times: list[float] = []
    memory: list[float] = []
    total: dict[str, int] = {}
    while (elapsed := time.monotonic() - start) < 60 * minutes or rounds < 2 * COMPARE_EVERY:
        for twin, draw in zip(twins, draws, strict=True):
            for _ in range(2):
                twin.step(r.randrange(1 << 30), *draw(r))
            twin.evaluate(draw(r)[0])
            twin.step(r.randrange(1 << 30), *draw(r), poisoned=True)
        create_and_drop(r)
        threads_come_and_go(r, twins[0].ours, r.randint(1, 3))
        rounds += 1
        if rounds % COMPARE_EVERY == 0:
            total = add(total, innkeeper.stats())
            now = count_what_is_left(twins)
            before = before or now
            if now != before:
                grown = {name: (before[name], now[name]) for name in now if now[name] != before[name]}
                raise Broken(f"round {rounds}: counts (at round {COMPARE_EVERY}, now) differ: {grown}")
            for twin in twins:
                twin.compare()
            innkeeper.manager().reset_stats()
        if elapsed > WARM_UP * 60 * minutes:
            times.append(elapsed)
            memory.append(resident_mib())
        if elapsed - said >= 60:
            said = elapsed
            print(f"{elapsed / 60:5.1f} min, {rounds} rounds, {resident_mib():.1f} MiB resident", flush=True)
    report(rounds, total, before or {}, times, memory, minutes)


def add(total: dict[str, int], stats: dict[str, Any]) -> dict[str, int]:
    """Adds the counters since the last reset to those before it, and checks the host's peak."""
    host = stats["nodes"]["host"]
    gpus = sum(row["budget"] for name, row in stats["nodes"].items() if name.startswith("sim"))
    if host["peak"] > MOST_ON_HOST * (host["resident"] + gpus):
        raise Broken(f"the host held {host['peak']} bytes, and {host['resident']} are left")
    return {key: total.get(key, 0) + stats[key] for key in ("ops", "fetches", "evictions")}


def report(
    rounds: int,
    done: dict[str, int],
    counts: dict[str, int],
    times: list[float],
    memory: list[float],
    minutes: float,
) -> None:
    """Prints the counters, and judges the memory."""
    quarter = max(1, len(memory) // 4)
    growth = statistics.median(memory[-quarter:]) - statistics.median(memory[:quarter])
    an_hour = slope(times, memory)
    print(
        f"{rounds} rounds, {done['ops']} operators, {done['fetches']} fetches, {done['evictions']} evictions"
    )
    print(f"the same after every {COMPARE_EVERY} rounds:")
    print(textwrap.fill(", ".join(f"{value} {name}" for name, value in counts.items()), 100))
    print(f"resident memory: {growth:+.1f} MiB from the first to the last quarter after warm-up,"
          f" {an_hour:+.1f} MiB an hour")  # fmt: skip
    if done["evictions"] == 0:
        raise Broken("nothing was evicted: the nodes are too large to show anything")
    grown = minutes >= GROWTH_MINUTES and growth > MOST_GROWTH_MIB
    if grown or (minutes >= SLOPE_MINUTES and an_hour > MOST_SLOPE_MIB):
        raise Broken("the process's memory grows")


def main() -> int:
    """Runs it, and says how it ended."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--quick", action="store_true", help="twenty rounds, to see that it works")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--nodes", default="sim:2x1280KiB,host:64MiB")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.minutes = 0
    torch.set_num_threads(1)
    innkeeper.configure(arguments.nodes)
    print(f"seed {arguments.seed}, nodes {arguments.nodes}, {arguments.minutes} minutes", flush=True)
    try:
        soak(arguments.minutes, arguments.seed)
    except Broken as error:
        print(f"FAILED: {error}")
        return 1
    print("no leak, no drift")
    return 0


if __name__ == "__main__":
    sys.exit(main())
