"""Bytes that go up, down and across come back as they were, in every order in which the GPU may work."""

from __future__ import annotations

import innkeeper
import pytest
from fake import MIB, ask, others_hold
from patterns import check, many, node, pattern

import torch


def test_more_than_the_gpu_holds_comes_back() -> None:
    pairs = many(20)
    for _ in range(3):
        check([(original, managed.clone()) for original, managed in pairs])
    assert innkeeper.stats()["evictions"] > 0
    assert innkeeper.stats()["fetches"] > 0


def test_clones_and_copies_on_the_compute_stream() -> None:
    pairs = many(10)
    clones = [managed.clone() for _, managed in pairs]
    for i, clone in enumerate(clones):
        clone.copy_(pairs[(i + 3) % 10][1])
    for i, clone in enumerate(clones):
        assert torch.equal(clone.cpu(), pairs[(i + 3) % 10][0]), i
    for (_, managed), clone in zip(pairs, clones, strict=True):
        managed.zero_().copy_(clone)
    for i, (_, managed) in enumerate(pairs):
        assert torch.equal(managed.cpu(), pairs[(i + 3) % 10][0]), i
    assert innkeeper.stats()["evictions"] > 0


def test_what_a_kernel_wrote_last_is_what_is_evicted() -> None:
    parts = []
    for i in range(24):
        parts.append(torch.full((2 * MIB,), float(i), device="managed"))
        if i % 3 == 0:
            parts[i // 2].add_(0.5)
    touched = {i // 2 for i in range(0, 24, 3)}
    for i, part in enumerate(parts):
        wanted = i + (0.5 if i in touched else 0.0)
        assert bool((part.cpu() == wanted).all()), i
    assert innkeeper.stats()["evictions"] > 0


def test_a_kernel_that_follows_a_fetch_reads_what_was_fetched() -> None:
    pairs = many(12)
    for i in (0, 5, 11, 2, 7):
        total = sum(managed for _, managed in pairs[i : i + 2])
        expected = sum(original for original, _ in pairs[i : i + 2])
        assert torch.equal(total.cpu(), expected)
    assert innkeeper.stats()["fetches"] > 0


def test_prefetch_write_back_and_evict_by_request() -> None:
    original = pattern(5)
    managed = original.to("managed")
    for i in range(5):
        innkeeper.evict(managed)
        assert innkeeper.where(managed) == ["host"]
        innkeeper.prefetch(managed, "cuda:0")
        managed += 1
        assert torch.equal(managed.clone().cpu(), original + i + 1)


def test_host_memory_that_a_copy_still_reads_is_not_given_to_another() -> None:
    """An eviction writes host memory that a fetch has just released, whose copy has not run."""
    pairs = many(3, 16)
    for _ in range(6):
        for original, managed in pairs:
            innkeeper.evict(managed)
            innkeeper.prefetch(managed, "cuda:0")
            # Drops the host's replica while the copy from it may not have run.
            managed.add_(0)
            other = torch.full((4 * MIB,), -1, dtype=torch.int32, device="managed")
            innkeeper.evict(other)
            assert torch.equal(managed.cpu(), original)


@pytest.mark.usefixtures("late")
def test_memory_that_a_copy_still_reads_is_not_unmapped() -> None:
    """PyTorch's allocator waits for the stream of the memory that it unmaps, not for a copy from there."""
    original = pattern(1, 24)
    managed = original.to("managed").add_(0)
    torch.cuda.synchronize()
    left = torch.cuda.mem_get_info()[0]
    innkeeper.evict(managed)
    assert ask("pending") > 0, "its copy is still to be made"
    with others_hold(0, left - 8 * MIB), torch.cuda.stream(torch.cuda.Stream()):
        other = torch.full((5 * MIB,), 3, dtype=torch.int32, device="cuda")  # 20 MiB of the GPU's 32
        assert bool((other.cpu() == 3).all())
    assert torch.equal(managed.cpu(), original)


@pytest.mark.usefixtures("late")
def test_kernels_do_not_wait_for_evictions() -> None:
    first, second = pattern(1), pattern(2)
    gone, back = first.to("managed").add_(0), second.to("managed").add_(0)
    busy = torch.zeros(4, device="managed")
    innkeeper.evict(back)
    torch.cuda.synchronize()
    assert ask("pending") == 0
    innkeeper.evict(gone)
    pending = ask("pending")
    assert pending > 0
    busy.add_(1)
    torch.cuda.default_stream().synchronize()
    assert ask("pending") == pending, "the copy out is still to be made"
    torch.cuda.synchronize()
    assert torch.equal(gone.cpu(), first)
    assert torch.equal(back.cpu(), second)


def test_moves_between_two_gpus_are_ordered_both_ways() -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    pairs = many(14)
    for i, (original, managed) in enumerate(pairs):
        with innkeeper.on("cuda:1" if i % 2 else "cuda:0"):
            managed.copy_(managed.clone())
        for name in ("cuda:1", "cuda:0", "cuda:1"):
            innkeeper.prefetch(managed, name)
            managed.add_(1)
        assert torch.equal(managed.clone().cpu(), original + 3), i
    assert innkeeper.stats()["bytes_between"] > 0


def test_a_full_gpu_is_relieved_by_its_peer() -> None:
    innkeeper.configure("cuda:0:32MiB,cuda:1:128MiB,host:1GiB")
    pairs = []
    for i in range(6):
        with innkeeper.on("cuda:0"):
            pairs.append((pattern(i) + 1, pattern(i).to("managed").add_(1)))
    assert innkeeper.stats()["bytes_between"] > 0
    check(pairs)


def test_copies_use_page_locked_memory() -> None:
    before = ask("locked_bytes")
    pairs = many(10)
    check(pairs)
    assert innkeeper.stats()["evictions"] > 0
    # The host's replicas are in locked slabs.
    assert ask("locked_bytes") - before >= node("host")["replicas"] > 0


def test_a_program_of_operators_has_the_host_s_bits() -> None:
    results = []
    for device in ("cpu", "cuda", "managed"):
        torch.manual_seed(1)
        x = torch.randn(256, 256)
        weights = [torch.randn(256, 256).to(device) for _ in range(8)]
        y = x.to(device)
        for weight in weights:
            y = torch.tanh(y @ weight / 16)
        results.append(y.cpu())
    assert torch.equal(results[1], results[2])
    assert torch.allclose(results[0], results[1])


@pytest.mark.parametrize("pinned", [True, False])
def test_tensors_of_the_host_go_up_without_waiting_for_it(pinned: bool) -> None:
    source = pattern(3).pin_memory("cuda") if pinned else pattern(3)
    managed = source.to("managed", non_blocking=True)
    assert torch.equal(managed.cpu(), pattern(3))
