"""Copies run beside kernels, on queues of their own: by the simulators' clock, which is a model and exact."""

from __future__ import annotations

from collections.abc import Callable

import innkeeper
import pytest

import torch


@pytest.mark.parametrize("target", ["sim:0", "host"])
def test_a_copy_runs_beside_kernels(target: str, configure: Callable[[str], None]):
    configure("sim:1x64MiB,host:1GiB")
    weight = torch.randn(1024, 1024, device="managed")
    moved = torch.ones(4 << 20, device="managed")

    def took(*works: Callable[[], None]) -> float:
        """Simulated seconds, of works on data that are not at the target yet."""
        innkeeper.prefetch(moved, "sim:0")
        moved.add_(1)
        if target == "sim:0":
            innkeeper.evict(moved)
        torch.managed.synchronize()
        before = innkeeper.stats()["simulated_seconds"]
        for work in works:
            work()
        torch.managed.synchronize()
        return innkeeper.stats()["simulated_seconds"] - before

    def copy() -> None:
        innkeeper.prefetch(moved, target)

    def compute() -> None:
        for _ in range(20):
            weight @ weight

    took(compute)  # memory for the results is there from now on
    alone = took(copy), took(compute)
    assert min(alone) > 1e-4
    assert took(copy, compute) < max(alone) * 1.05
