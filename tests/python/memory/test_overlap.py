"""Copies run concurrently with kernels, on own queues: by the simulators' clock, an exact model."""

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
        """Simulated seconds of works on data that are not at the target yet."""
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

    took(compute)  # Allocates memory for the results.
    alone = took(copy), took(compute)
    assert min(alone) > 1e-4
    assert took(copy, compute) < max(alone) * 1.05


def simulated_ms(work: Callable[[], object]) -> float:
    """Time of the work until the device has done it, in simulated milliseconds."""
    torch.managed.synchronize()
    before = innkeeper.stats()["simulated_seconds"]
    work()
    torch.managed.synchronize()
    return 1e3 * (innkeeper.stats()["simulated_seconds"] - before)


class Copies:
    """A batch and a result of 8 MiB in page-locked memory, and kernels that take about as long as a copy."""

    def __init__(self) -> None:
        self.batch = torch.arange(2 << 20, dtype=torch.float32).pin_memory()
        self.result = torch.empty(2 << 20).pin_memory()
        self.weight = torch.randn(1024, 1024, device="managed")
        self.value = torch.full((2 << 20,), 3.0, device="managed")
        self.kernels()
        self.batch.to("managed")

    def kernels(self) -> None:
        for _ in range(40):
            self.weight @ self.weight


def test_a_batch_from_pinned_memory_arrives_beside_kernels(configure: Callable[[str], None]):
    configure("sim:1x128MiB,host:1GiB")
    copies = Copies()
    arrived: list[torch.Tensor] = []

    def both() -> None:
        copies.kernels()
        arrived.append(copies.batch.to("managed", non_blocking=True))

    alone = simulated_ms(copies.kernels), simulated_ms(lambda: copies.batch.to("managed"))
    assert min(alone) > 0.1
    assert simulated_ms(both) < 1.05 * max(alone)
    assert torch.equal(arrived[0].cpu(), copies.batch)


def test_a_result_goes_to_pinned_memory_beside_kernels(configure: Callable[[str], None]):
    configure("sim:1x128MiB,host:1GiB")
    copies = Copies()

    def both() -> None:
        copies.kernels()
        copies.result.copy_(copies.value, non_blocking=True)

    alone = simulated_ms(copies.kernels), simulated_ms(lambda: copies.result.copy_(copies.value))
    assert simulated_ms(both) < 1.05 * max(alone)
    assert torch.equal(copies.result, torch.full((2 << 20,), 3.0))


@pytest.mark.parametrize("case", ["pageable", "blocking", "other dtype", "other strides"])
def test_other_copies_wait_for_kernels(case: str, configure: Callable[[str], None]):
    """These copies wait as on CUDA, or because a kernel takes part in them."""
    configure("sim:1x128MiB,host:1GiB")
    copies = Copies()
    source = {
        "pageable": torch.ones(2 << 20),
        "blocking": copies.batch,
        "other dtype": copies.batch,
        "other strides": copies.batch.view(1024, 2048).t(),
    }[case]
    dtype = torch.float64 if case == "other dtype" else torch.float32

    def copy() -> torch.Tensor:
        target = torch.empty(source.shape, dtype=dtype, device="managed")
        return target.copy_(source, non_blocking=case != "blocking")

    copied: list[torch.Tensor] = []

    def both() -> None:
        copies.kernels()
        copied.append(copy())

    copy()
    assert simulated_ms(both) > simulated_ms(copies.kernels) + 0.9 * simulated_ms(copy)
    assert torch.equal(copied[0].cpu(), source.to(dtype))


def test_pageable_memory_is_copied_at_its_own_rate(configure: Callable[[str], None]):
    configure("sim:1x128MiB,host:1GiB")
    pinned = torch.ones(8 << 20).pin_memory()
    pageable = pinned.clone()
    there = pinned.to("managed")
    assert simulated_ms(lambda: pageable.to("managed")) / simulated_ms(lambda: pinned.to("managed")) > 2
    assert simulated_ms(lambda: pageable.copy_(there)) / simulated_ms(lambda: pinned.copy_(there)) > 2


def test_a_copy_out_and_in_again_of_one_pinned_buffer_are_in_order(configure: Callable[[str], None]):
    """save_on_cpu(pin_memory=True) does this: its second copy reads the bytes that the first wrote."""
    configure("sim:1x128MiB,host:1GiB")
    copies = Copies()
    copy = simulated_ms(lambda: copies.result.copy_(copies.value))
    returned: list[torch.Tensor] = []

    def out_and_in() -> None:
        copies.result.copy_(copies.value, non_blocking=True)
        returned.append(copies.result.to("managed", non_blocking=True))

    assert simulated_ms(out_and_in) > 1.9 * copy
    assert torch.equal(returned[0].cpu(), torch.full((2 << 20,), 3.0))

    def out_and_blocking_in() -> None:
        copies.result.copy_(copies.value, non_blocking=True)
        copies.result.to("managed")

    assert simulated_ms(out_and_blocking_in) > 1.9 * copy
    halves = copies.result[: 1 << 20], copies.result[1 << 20 :]

    def other_half() -> None:
        halves[0].copy_(copies.value[: 1 << 20], non_blocking=True)
        halves[1].to("managed", non_blocking=True)

    assert simulated_ms(other_half) < 0.6 * copy


def test_copies_out_and_into_one_block_are_in_order(configure: Callable[[str], None]):
    configure("sim:1x128MiB,host:1GiB")
    copies = Copies()
    copy = simulated_ms(lambda: copies.result.copy_(copies.value))

    def out_and_overwritten(between: Callable[[], object] = lambda: None) -> None:
        for _ in range(3):
            copies.result.copy_(copies.value, non_blocking=True)
            between()
            copies.value.copy_(copies.batch, non_blocking=True)

    assert simulated_ms(out_and_overwritten) > 5.9 * copy
    assert simulated_ms(lambda: out_and_overwritten(lambda: copies.value[:1] * 2)) > 5.9 * copy


def test_saved_tensors_in_pinned_memory_give_the_same_gradients(configure: Callable[[str], None]):
    configure("sim:1x4MiB,host:1GiB")

    def gradients(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8))).to(device)
        with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type="managed"):
            loss = model(torch.randn(128, 256).to(device)).square().sum()
        loss.backward()
        return [parameter.grad.cpu() for parameter in model.parameters()]

    for managed, cpu in zip(gradients("managed"), gradients("cpu"), strict=True):
        assert torch.equal(managed, cpu)


def test_batches_and_results_keep_their_bits_on_a_tight_device(configure: Callable[[str], None]):
    configure("sim:1x2MiB,host:1GiB")
    kept, results = [], []
    for n in range(64):
        batch = torch.full((1 << 15,), float(n)).pin_memory()
        kept.append(batch.to("managed", non_blocking=True))
        results.append(torch.empty(1 << 15).pin_memory().copy_(kept[-1] * 2, non_blocking=True))
        del batch
    torch.managed.synchronize()
    for n in range(64):
        assert torch.equal(kept[n].cpu(), torch.full((1 << 15,), float(n)))
        assert torch.equal(results[n], torch.full((1 << 15,), 2.0 * n))
