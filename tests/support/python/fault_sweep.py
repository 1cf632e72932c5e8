"""Fails the n-th allocation, copy, kernel or event of a step, for every n until the step passes clean.

    python tests/support/python/fault_sweep.py WORKLOAD NODES

WORKLOAD is one of WORKLOADS, NODES 1 or 2 simulated ones. Each n begins from the same saved state. The
step either completes, and then its result is the one without a fault, or raises an error that names the
fault. Then every element of every tensor must be one that the step gives it without a fault, before or
after each of the operators that write it (so none was written twice, I9); the accounting must equal a
recount (I7); nothing is pinned or left over; and the same step from the saved state must give the right
result.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import innkeeper
import models
import torch.nn.functional as F
from accelerators import here
from innkeeper import _C
from torch.utils._python_dispatch import TorchDispatchMode

import torch
from torch import Tensor, nn

KINDS = {"allocation": 1, "copy": 2, "kernel": 4, "late kernel": 8, "event": 16}


@dataclass
class Training:
    """A training step, and the tensors that it changes."""

    step: Callable[[], None]
    tensors: list[Tensor]  # Parameters, buffers and the optimizer's state.
    parameters: list[Tensor] = field(default_factory=list)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    state = [value for row in optimizer.state.values() for value in row.values() if isinstance(value, Tensor)]
    return [p.detach() for p in model.parameters()] + list(model.buffers()) + state


def training(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Training:
    def step() -> None:
        torch.manual_seed(3)
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    step()  # Makes the optimizer's state.
    optimizer.zero_grad()
    return Training(step, state_of(model, optimizer), list(model.parameters()))


def tiny() -> Training:
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 24)).to("managed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    x = torch.randn(8, 24, generator=torch.Generator().manual_seed(1)).to("managed")
    return training(model, optimizer, lambda: F.mse_loss(model(x), x))


def gpt() -> Training:
    model = models.Gpt(width=32, layers=1, vocabulary=48).to("managed")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, 48, (2, 16), generator=torch.Generator().manual_seed(1)).to("managed")
    return training(
        model,
        optimizer,
        lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()),
    )


def resnet() -> Training:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        *(models.Residual(16) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    ).to("managed")  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=True)
    data = torch.Generator().manual_seed(1)
    images = torch.randn(2, 3, 8, 8, generator=data).to("managed")
    labels = torch.randint(0, 10, (2,), generator=data).to("managed")
    return training(model, optimizer, lambda: F.cross_entropy(model(images), labels))


def optimizer() -> Training:
    """AdamW over lists (foreach): gradients exist, and the step writes each tensor several times."""
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(5))).to("managed")
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator).to("managed")
    adam.step()
    return Training(adam.step, state_of(model, adam), list(model.parameters()))


WORKLOADS: dict[str, Callable[[], Training]] = {
    "tiny": tiny,
    "gpt": gpt,
    "resnet": resnet,
    "optimizer": optimizer,
}


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [x.detach().cpu().clone() for x in tensors]


class Versions(TorchDispatchMode):
    """Records every value that each tensor has between two operators."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        self.tensors = tensors
        self.seen: list[list[Tensor]] = [[x] for x in copies(tensors)]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function._schema.is_mutable or "batch_norm" in str(function):
            for versions, now in zip(self.seen, copies(self.tensors), strict=True):
                if not same(versions[-1], now):
                    versions.append(now)
        return result


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def between(now: Tensor, versions: list[Tensor]) -> bool:
    """Whether each element equals that of some version."""
    known = torch.zeros(now.shape, dtype=torch.bool)
    for version in versions:
        known |= (now == version) | (now.isnan() & version.isnan())
    return bool(known.all())


class Injected:
    """Failures by our own hooks (src/torch/process/faults.h)."""

    def arm(self, kinds: int, nth: int, more: int = 0) -> None:
        _C.inject_faults(kinds, nth, more)

    def disarm(self) -> None:
        _C.inject_faults(0, 0)

    def calls(self) -> int:
        return _C.injected_faults()[0]

    def tells(self, error: Exception) -> bool:
        """Whether the error's message names the injected fault."""
        return "injected: " in str(error)


class Sweep:
    def __init__(self, workload: str, count: int, faults: Injected | None = None) -> None:
        self.faults = faults or Injected()
        torch.manual_seed(1)
        # Without plans each try makes the same calls; those with plans: tests/model/periods_test.cc.
        innkeeper.configure(here(f"sim:{count}x16MiB,host:64MiB"), planning=False)
        self.training = WORKLOADS[workload]()
        self.saved = copies(self.training.tensors)
        self.squeeze(count)
        self.restore()
        with Versions(self.training.tensors) as versions:
            self.training.step()
        self.versions = versions.seen
        self.after = copies(self.training.tensors)
        assert not all(same(a, b) for a, b in zip(self.saved, self.after, strict=True))
        self.evictions = 0

    def squeeze(self, count: int) -> None:
        """Cuts the budgets until a step must evict, as far as it still passes."""
        innkeeper.manager().reset_stats()
        self.training.step()
        names = [here(f"sim:{n}") for n in range(count)]
        peak = sum(innkeeper.stats()["nodes"][name]["peak"] for name in names)
        for percent in range(15, 100, 5):
            for name in names:
                innkeeper.manager().set_budget(name, peak * percent // 100 // count // 64 * 64)
            try:
                self.restore()
                self.training.step()
                return
            except torch.OutOfMemoryError:
                for name in names:
                    innkeeper.manager().set_budget(name, 16 << 20)

    def restore(self) -> None:
        with torch.no_grad():
            for x, value in zip(self.training.tensors, self.saved, strict=True):
                x.copy_(value)

    def calls(self, kinds: int) -> int:
        self.restore()
        self.faults.arm(kinds, 0)
        innkeeper.manager().reset_stats()
        self.training.step()
        self.evictions = innkeeper.stats()["evictions"]
        calls = self.faults.calls()
        self.faults.disarm()
        return calls

    def attempt(self, kinds: int, nth: int, more: int = 0) -> bool:
        """One step with a fault. Returns whether it completed."""
        self.restore()
        blocks = torch.accelerator.memory_stats()["allocation.all.current"]
        error, told = None, False
        self.faults.arm(kinds, nth, more)
        try:
            self.training.step()
        except (RuntimeError, torch.OutOfMemoryError) as raised:
            error, told = str(raised), self.faults.tells(raised)
        self.faults.disarm()
        what = f"kinds {kinds}, call {nth} and {more} more"
        now = copies(self.training.tensors)
        if error is None:
            assert all(same(a, b) for a, b in zip(now, self.after, strict=True)), (
                f"{what}: completed, but wrong"
            )
        else:
            assert told, f"{what}: the error does not say what happened: {error}"
            for x, versions in zip(now, self.versions, strict=True):
                assert between(x, versions), f"{what}: an element that no step gives: {error}"
        self.check_books(what)
        self.restore()
        self.training.step()
        again = copies(self.training.tensors)
        assert all(same(a, b) for a, b in zip(again, self.after, strict=True)), f"{what}: wrong afterwards"
        left = torch.accelerator.memory_stats()["allocation.all.current"] - blocks
        if left > 0:
            gc.collect()  # A traceback may hold tensors in a cycle.
            left = torch.accelerator.memory_stats()["allocation.all.current"] - blocks
        assert left <= 0, f"{what}: {left} blocks are left over"
        return error is None

    def check_books(self, what: str) -> None:
        broken = _C.check_invariants()
        assert not broken, f"{what}: {broken}"
        stats = innkeeper.stats()
        assert stats["escaped"] == 0, what
        for name, node in stats["nodes"].items():
            assert node["resident"] == node["recount"] <= node["budget"], f"{what}: {name}: {node}"
            assert node["pinned"] == 0, f"{what}: {name}: {node}"


def main() -> None:
    workload, count = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    sweep = Sweep(workload, count)
    report: dict[str, dict[str, int]] = {}
    for name, kind in KINDS.items():
        calls = sweep.calls(kind)
        done = [sweep.attempt(kind, nth) for nth in range(1, calls + 1)]
        report[name] = {
            "calls": calls,
            "tried": len(done),
            "failed": done.count(False),
            "passed": done.count(True),
        }
    seed = int(os.environ.get("INNKEEPER_SEED") or random.randrange(1 << 32))
    r = random.Random(seed)
    print(f"two faults: seed {seed}", file=sys.stderr)
    every = sum(row["calls"] for row in report.values())
    for _ in range(10):
        sweep.attempt(r.randrange(1, 32), r.randrange(1, every + 1), r.randrange(1, 3))
    print(json.dumps({"evictions": sweep.evictions, "faults": report}))


if __name__ == "__main__":
    main()
