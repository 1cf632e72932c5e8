"""torch.cuda and Innkeeper in one process: own tensors, streams, graphs, limits and statistics."""

from __future__ import annotations

import gc
import time

import innkeeper
import pytest
from fake import MIB, OUT_OF_MEMORY, fail, others_hold
from patterns import check, many, node, pattern

import torch


def test_own_tensors_make_room_and_are_counted() -> None:
    pairs = many(7)
    before = innkeeper.stats()["evictions"]
    own = torch.zeros(40 * MIB, dtype=torch.uint8, device="cuda")
    assert innkeeper.stats()["evictions"] > before
    assert node()["recount"] == node()["resident"] <= node()["budget"]
    assert not own.any()
    del own
    check(pairs)


def test_memory_that_others_took_is_made_up_for_by_evicting() -> None:
    pairs = many(4)
    left = torch.cuda.mem_get_info()[0]
    with others_hold(0, left - 4 * MIB):
        pairs += [(pattern(i + 50), pattern(i + 50).to("managed")) for i in range(4)]
        check(pairs)
        assert innkeeper.stats()["evictions"] > 0
    check(pairs)


def test_a_gpu_that_others_filled_is_out_of_memory_with_the_numbers_and_recovers() -> None:
    torch.cuda.empty_cache()
    with (
        others_hold(0, torch.cuda.mem_get_info()[0]),
        pytest.raises(torch.OutOfMemoryError, match="evicted"),
    ):
        torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.equal(pattern(2).to("managed").clone().cpu(), pattern(2))


@pytest.mark.parametrize("call", ["cuMemCreate", "cudaMalloc"])
def test_an_allocation_that_is_refused_once_is_made_after_relief(call: str) -> None:
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    fail(call, 0, OUT_OF_MEMORY)
    assert torch.equal(pattern(3, 30).to("managed").cpu(), pattern(3, 30))


def test_emptying_the_cache_under_work_is_harmless() -> None:
    pairs = many(12)
    for i, (_, managed) in enumerate(pairs):
        managed.add_(1)
        if i % 3 == 0:
            torch.cuda.empty_cache()
    check([(original + 1, managed) for original, managed in pairs])


def test_emptying_the_cache_waits_for_the_work_of_every_gpu() -> None:
    """PyTorch 2.11 asks for the stream of the GPU that is current, whose handle is every GPU's."""
    with torch.cuda.device(1):
        operand = torch.full((8 * MIB,), 2.0, device="cuda:1")
        torch.cuda.synchronize()
        result = operand * 3
        del operand
    with torch.cuda.device(0):
        torch.cuda.empty_cache()
    assert bool((result == 6).all())


def test_statistics_of_torch_cuda_stay_their_own() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    own = torch.zeros(8 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == before + 8 * MIB
    assert torch.cuda.max_memory_allocated() >= before + 8 * MIB
    torch.cuda.reset_peak_memory_stats()
    innkeeper.manager().reset_stats()
    assert node()["peak"] >= 8 * MIB
    del own
    assert torch.cuda.memory_allocated() == before


def test_a_memory_fraction_of_the_program_s_is_an_error_of_memory_not_of_bytes() -> None:
    pairs = many(4)
    torch.cuda.set_per_process_memory_fraction(0.2)
    try:
        pairs += [(pattern(i + 9), pattern(i + 9).to("managed")) for i in range(6)]
        check(pairs)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    check(pairs)


def sent_late(side: torch.cuda.Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Sevens that a stream writes late on the GPU, and their copy, which it sends to the managed device."""
    source = torch.zeros(MIB, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(1000)
        source.fill_(7.0)
        return source, source.to("managed")


def test_own_streams_are_in_order_with_managed_tensors() -> None:
    side = torch.cuda.Stream()
    _source, managed = sent_late(side)
    with torch.cuda.stream(side):
        managed += 3.0
        target = torch.zeros(MIB, device="cuda")
        target.copy_(managed)
        target *= 2.0
        assert target.sum().item() == 20.0 * MIB
    assert managed.sum().item() == 10.0 * MIB


def test_what_another_stream_made_is_waited_for() -> None:
    _source, managed = sent_late(torch.cuda.Stream())
    assert managed.sum().item() == 7.0 * MIB  # Nothing has waited for the other stream.


def test_memory_recorded_on_another_stream_is_not_given_away_early() -> None:
    side = torch.cuda.Stream()
    tensor = torch.zeros(2 * MIB, device="cuda")
    address = tensor.data_ptr()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(1000)
        tensor.add_(1.0)
        kept = tensor.clone()
        tensor.record_stream(side)
    del tensor
    again = torch.full((2 * MIB,), 9.0, device="cuda")
    if not side.query():  # The stream had not ended when `again` was made, either.
        assert again.data_ptr() != address
    side.synchronize()
    assert bool((kept == 1.0).all())


def test_a_graph_of_own_tensors_replays_beside_managed_ones() -> None:
    own = torch.ones(MIB, device="cuda")
    pairs = many(6)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        own.mul_(2.0)
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            pairs[0][1].mul_(2)
    for _ in range(3):
        check(pairs)
        graph.replay()
    assert own.sum().item() == 8.0 * MIB


def test_no_space_is_made_while_a_graph_is_captured() -> None:
    own = torch.ones(4 * MIB, device="cuda")
    pairs = many(5)  # Leaves the space that the graph itself needs.
    torch.cuda.synchronize()
    before = innkeeper.stats()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = own * 2  # 16 MiB, more than the free part of the budget.
    after = innkeeper.stats()
    assert after["evictions"] == before["evictions"], "a copy or an event inside would break the capture"
    graph.replay()
    assert twice.sum().item() == 8.0 * MIB
    check(pairs)


def test_what_waits_for_the_link_waits_for_the_end_of_a_capture() -> None:
    """A call of the engine's own thread would end the capture, and memory has no owner meanwhile."""
    innkeeper.configure("cuda:0:240MiB,host:1GiB")
    pairs = many(28)
    for _, managed in pairs:
        innkeeper.evict(managed)
    own = torch.ones(MIB, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    for _, managed in pairs[:14]:
        innkeeper.prefetch(managed, "cuda:0")
    with torch.cuda.graph(graph):
        own.mul_(2.0)
        for _, managed in pairs[14:]:
            innkeeper.prefetch(managed, "cuda:0")
        time.sleep(0.01)  # Lets the move end that the engine's thread is making.
        before = innkeeper.stats()["bytes_fetched"]
        time.sleep(0.1)
        assert innkeeper.stats()["bytes_fetched"] == before < sum(managed.nbytes for _, managed in pairs)
    graph.replay()
    check(pairs)
    assert node()["recount"] == node()["resident"] <= node()["budget"]


def test_a_prefetch_inside_a_capture_waits_for_its_end() -> None:
    """The same with an idle link."""
    pairs = many(3)
    for _, managed in pairs:
        innkeeper.evict(managed)
    own = torch.ones(MIB, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        own.mul_(2.0)
        before = innkeeper.stats()["bytes_fetched"]
        for _, managed in pairs:
            innkeeper.prefetch(managed, "cuda:0")
        assert innkeeper.stats()["bytes_fetched"] == before
    graph.replay()
    check(pairs)
    assert node()["recount"] == node()["resident"] <= node()["budget"]


def test_segments_of_the_gpus_allocator_grow() -> None:
    tensors = [torch.ones(MIB, device="managed") for _ in range(4)]
    segments = torch.cuda.memory_snapshot()
    assert segments
    assert all(segment["is_expandable"] for segment in segments), segments
    del tensors


def test_what_the_gpus_allocator_keeps_stays_near_the_budget() -> None:
    for stream in [torch.cuda.Stream() for _ in range(4)]:  # Each stream has segments of its own.
        with torch.cuda.stream(stream):
            torch.ones(12 * MIB, device="cuda")
        stream.synchronize()
    # A budget of 64 MiB, and the most that segments may take beyond it: 64 MiB and a sixteenth.
    assert torch.cuda.memory_reserved() <= 132 << 20


def test_copies_between_own_tensors_of_two_gpus() -> None:
    innkeeper.configure("cuda:0:64MiB,cuda:1:64MiB,host:1GiB")
    a = torch.arange(MIB, device="cuda:0")
    b = a.to("cuda:1", non_blocking=True)
    assert torch.equal(b.cpu(), torch.arange(MIB))
    assert node("cuda:1")["recount"] >= 8 * MIB
