"""An error of a GPU is no want of memory: it names the GPU and the call, and only lost data is lost."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import fake
import innkeeper
import pytest
from fake import BROKEN, ILLEGAL_ADDRESS, INVALID_VALUE, MIB, OUT_OF_MEMORY, UNKNOWN, ask, fail
from patterns import check, many, node, pattern

import torch

BOTH = "cuda:0:64MiB,cuda:1:64MiB,host:1GiB"


@contextlib.contextmanager
def failing_copies(count: int, says: str) -> Iterator[None]:
    """The next copies fail, and operators that need one fail with the GPU's error. No byte is lost by it."""
    for _ in range(count):
        fail("cudaMemcpyAsync")
    with pytest.raises(torch.AcceleratorError, match=says):
        yield


def test_a_copy_that_fails_in_an_eviction_is_the_gpu_s_error() -> None:
    pairs = many(8)
    with failing_copies(1, r"copying 8.0 MiB to the host failed: CUDA error: unknown"):
        torch.zeros(8 * MIB, dtype=torch.uint8, device="managed")
    check(pairs)


def test_so_it_is_for_the_program_s_own_cuda_tensors() -> None:
    pairs = many(8)
    with failing_copies(1, "cuda:0: copying"):
        torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    check(pairs)


def test_another_victim_may_leave_instead() -> None:
    pairs = many(8)
    fail("cudaMemcpyAsync")
    torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    check(pairs)


def test_so_it_is_when_the_gpu_itself_was_full() -> None:
    pairs = many(4)
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    # One copy of each block that could leave.
    with fake.others_hold(0, free), failing_copies(4, "cuda:0: copying"):
        torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    check(pairs)


def test_an_error_leaves_nothing_behind_for_the_next_call_to_find() -> None:
    pairs = many(12)
    for call in ("cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventCreateWithFlags"):
        for skip in range(6):
            fail(call, skip)
            try:
                for _, managed in pairs:
                    managed.clone()
            except torch.AcceleratorError as error:
                assert "CUDA error" in str(error)
            ask("cancel_failures")
            innkeeper.manager().check_invariants()
            assert torch.zeros(8, device="cuda").add_(1).sum().item() == 8
    check(pairs)


@pytest.mark.parametrize("error", [INVALID_VALUE, OUT_OF_MEMORY])
def test_page_locking_that_is_refused_costs_speed_alone(error: int) -> None:
    before = ask("locked_bytes")
    for _ in range(64):
        fail("cudaHostRegister", 0, error)
    innkeeper.configure("cuda:0:64MiB,host:2GiB")  # New slabs: nothing is locked yet.
    pairs = many(12)
    assert (
        torch.full((MIB,), 3.0, device="cuda").sum().item() == 3.0 * MIB
    )  # No kernel's check finds the error.
    check(pairs)
    ask("cancel_failures")
    assert innkeeper.stats()["evictions"] > 0
    assert ask("locked_bytes") < before + MIB  # item() locks 4 bytes.


def test_a_copy_whose_wait_failed_is_over_before_others_have_its_memory() -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    with innkeeper.on("cuda:0"):
        x = torch.ones(MIB).to("managed").add_(1)
    with innkeeper.on("cuda:1"):
        y = torch.ones(MIB).to("managed").add_(2)
    innkeeper.prefetch(x, "host")
    fail("cudaEventSynchronize")
    with pytest.raises(torch.AcceleratorError), innkeeper.resident(x, "host"):
        pass
    ask("cancel_failures")
    innkeeper.prefetch(y, "host")  # into the same memory, by the other GPU
    with innkeeper.resident(y, "host") as real:
        torch.cuda.synchronize(0)
        assert bool((real == 3).all())
    assert bool((x == 2).all())


@pytest.mark.parametrize("call", ["cudaEventSynchronize", "cudaDeviceSynchronize"])
def test_also_where_the_wait_for_the_gpu_fails_once_more(call: str) -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    with innkeeper.on("cuda:0"):
        x = torch.ones(MIB).to("managed").add_(1)
    with innkeeper.on("cuda:1"):
        y = torch.ones(MIB).to("managed").add_(2)
    torch.managed.synchronize()
    innkeeper.prefetch(x, "host")
    fail("cudaEventSynchronize")
    fail(call)
    with contextlib.suppress(torch.AcceleratorError), innkeeper.resident(x, "host"):
        pass
    ask("cancel_failures")
    innkeeper.prefetch(y, "host")
    with innkeeper.resident(y, "host") as real:
        torch.cuda.synchronize(0)
        assert bool((real == 3).all())
    assert bool((x == 2).all())


@pytest.mark.parametrize("call", ["cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamWaitEvent"])
def test_a_copy_between_gpus_of_which_a_part_fails_is_over_before_others_have_its_memory(call: str) -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    for skipped in range(8):
        with innkeeper.on("cuda:0"):
            x = torch.ones(MIB).to("managed").add_(1)
        torch.managed.synchronize()
        fail(call, skipped)
        with contextlib.suppress(torch.AcceleratorError):
            innkeeper.prefetch(x, "cuda:1")
        ask("cancel_failures")
        with innkeeper.on("cuda:1"):
            y = torch.full((MIB,), 7.0, device="managed")
        torch.cuda.synchronize(1)
        torch.cuda.synchronize(0)
        assert bool((y == 7).all()) and bool((x == 2).all()), skipped


@pytest.mark.parametrize("call", ["cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamWaitEvent"])
def test_a_stream_of_the_programs_own_waits_where_the_gpu_takes_no_event(call: str) -> None:
    side = torch.cuda.Stream()
    for skipped in range(4):
        managed = torch.ones(MIB, device="managed")
        torch.managed.synchronize()
        plain = torch.zeros(MIB, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            fail(call, skipped)
            try:
                plain.copy_(managed)
            except torch.AcceleratorError:
                continue
            finally:
                ask("cancel_failures")
            assert (plain * 2).sum().item() == 2 * MIB, skipped


@pytest.mark.parametrize("call", ["cudaEventCreateWithFlags", "cudaEventRecord", "cudaStreamWaitEvent"])
def test_a_failure_leaves_the_program_on_its_gpu(call: str) -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    torch.cuda.set_device(0)
    for skipped in range(3):
        with innkeeper.on("cuda:1"):
            x = torch.ones(MIB).to("managed").add_(1)
        fail(call, skipped)
        with contextlib.suppress(torch.AcceleratorError):
            innkeeper.prefetch(x, "host")
        ask("cancel_failures")
        assert torch.cuda.current_device() == 0, skipped
        assert bool((x == 2).all())


def test_memory_whose_unlocking_failed_is_never_taken_for_other_memory() -> None:
    pairs = many(12)
    check(pairs)
    del pairs
    gc.collect()
    fail("cudaHostUnregister")
    for size in (1, 2, 3, 4):  # New slabs, which may get the addresses.
        innkeeper.configure(f"cuda:0:64MiB,host:{size}GiB")
        assert torch.full((MIB,), 3.0, device="cuda").sum().item() == 3.0 * MIB
        pairs = many(6, 16)
        check([(original, managed.clone()) for original, managed in pairs])
        del pairs
        gc.collect()


@pytest.fixture
def broken_after() -> Iterator[None]:
    """The fake's own mercy: after the test the GPU works again."""
    yield
    gc.collect()
    for gpu in (0, 1):
        ask("repair", gpu)
    torch.cuda.synchronize()


@pytest.mark.usefixtures("broken_after")
@pytest.mark.parametrize("error", [ILLEGAL_ADDRESS, UNKNOWN])
def test_a_gpu_that_is_gone_takes_with_it_what_it_alone_held_by_name(error: int) -> None:
    innkeeper.configure(BOTH)
    with innkeeper.on("cuda:0"):
        alone = pattern(0).to("managed").add_(1)
        with_host = pattern(1).to("managed")
        innkeeper.evict(with_host)
        innkeeper.prefetch(with_host, "cuda:0")
        assert with_host[1].item() == pattern(1)[1]
    with innkeeper.on("cuda:1"):
        elsewhere = pattern(2).to("managed").add_(1)
    torch.cuda.synchronize(0)
    ask("break", 0, error)
    with pytest.raises(torch.AcceleratorError, match=r"cuda:0"):
        alone.add_(1)
    with pytest.raises(torch.AcceleratorError, match=r"\(8.0 MiB\) was only on cuda:0 and is lost with it"):
        alone.cpu()
    with innkeeper.on("cuda:1"):
        assert torch.equal(elsewhere.add_(1).cpu(), pattern(2) + 2)
        assert torch.equal(with_host.add_(1).cpu(), pattern(1) + 1)
    fresh = torch.ones(MIB, device="managed")  # placed where a GPU works
    assert innkeeper.where(fresh) == ["cuda:1"]
    assert fresh.sum().item() == MIB
    innkeeper.manager().check_invariants()
    del alone, with_host, elsewhere, fresh
    gc.collect()
    innkeeper.manager().check_invariants()
    assert node("cuda:0")["resident"] == 0


@pytest.mark.usefixtures("broken_after", "late")
def test_what_was_on_its_way_down_when_the_gpu_went_is_lost_with_its_reason() -> None:
    innkeeper.configure(BOTH)
    with innkeeper.on("cuda:0"):
        tensor = pattern(0).to("managed").add_(1)
    torch.cuda.synchronize()
    innkeeper.evict(tensor)  # The copy has not run.
    ask("break", 0, UNKNOWN)
    for _ in range(2):
        with pytest.raises(torch.AcceleratorError, match="cuda:0"):
            tensor.cpu()
    del tensor


@pytest.mark.usefixtures("broken_after")
def test_what_had_been_waited_for_is_safe_whatever_the_gpu_says_later() -> None:
    innkeeper.configure(BOTH)
    with innkeeper.on("cuda:0"):
        tensor = pattern(0).to("managed").add_(1)
    innkeeper.evict(tensor)
    torch.managed.synchronize()
    ask("break", 0, UNKNOWN)
    assert torch.equal(tensor.cpu(), pattern(0) + 1)


@pytest.mark.usefixtures("broken_after")
def test_the_nodes_can_be_configured_again_without_the_gpu_that_is_gone() -> None:
    innkeeper.configure(BOTH)
    with innkeeper.on("cuda:0"):
        tensor = pattern(0).to("managed").add_(1)
    torch.cuda.synchronize()
    ask("break", 0, UNKNOWN)
    with pytest.raises(torch.AcceleratorError):
        tensor.cpu()
    del tensor
    gc.collect()
    innkeeper.configure("cuda:1:64MiB,host:1GiB")
    assert torch.equal(pattern(3).to("managed").add_(1).cpu(), pattern(3) + 1)


def test_a_broken_gpu_is_told_from_one_call_that_failed() -> None:
    tensor = pattern(0).to("managed").add_(1)
    fail("cudaMemcpyAsync")
    with pytest.raises(torch.AcceleratorError, match="unknown error") as once:
        tensor.cpu()
    assert "lost" not in str(once.value)
    assert torch.equal(tensor.cpu(), pattern(0) + 1)
    fail("cudaMemcpyAsync", 0, UNKNOWN, BROKEN)
    with pytest.raises(torch.AcceleratorError):
        tensor.cpu()
    with pytest.raises(torch.AcceleratorError, match="cuda:0 is lost to this process"):
        tensor.add_(1)
    del tensor
    gc.collect()
    ask("repair", 0)
