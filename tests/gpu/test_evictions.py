"""Evictions inside the caching allocator: for managed tensors, for kernels and for plain CUDA tensors."""

from __future__ import annotations

import innkeeper
import pytest
from conftest import BUDGET
from gpu_device import MIB, NODE, PLAIN, REAL, nodes, record, run_python

import torch


def floats(mib: int) -> int:
    return mib * MIB // 4


def fill(count: int, mib: int) -> list[torch.Tensor]:
    return [torch.full((floats(mib),), float(i), device="managed") for i in range(count)]


def gpu() -> dict[str, int]:
    return innkeeper.stats()["nodes"][NODE]


def test_more_than_the_budget_holds_keeps_its_values() -> None:
    before = torch.cuda.memory_allocated() if REAL else 0
    tensors = fill(12, 64)
    for i, tensor in enumerate(tensors):
        assert tensor.amin().item() == tensor.amax().item() == float(i)
    stats = innkeeper.stats()
    assert stats["evictions"] > 0
    assert stats["fetches"] > 0
    if REAL:  # PyTorch's own count.
        assert torch.cuda.max_memory_allocated() <= before + BUDGET
        record("room", allocated_peak=torch.cuda.max_memory_allocated() - before, budget=BUDGET)


@pytest.mark.real
def test_odd_sizes_are_counted_as_the_caching_allocator_counts_them() -> None:
    before = torch.cuda.memory_allocated() - gpu()["recount"]
    kept = []
    for i in range(200):
        kept.append(
            torch.empty(MIB // 3 * (i % 17 + 1) + 77 * i, dtype=torch.uint8, device="managed").zero_()
        )
        if i % 3 == 2:
            kept.pop(0)
        assert torch.cuda.memory_allocated() - before == gpu()["recount"]
        assert gpu()["recount"] <= BUDGET
    assert innkeeper.stats()["evictions"] > 0


@pytest.mark.real
def test_a_recount_follows_every_allocation_and_release() -> None:
    before = gpu()["recount"]
    managed, own = torch.zeros(floats(16), device="managed"), torch.zeros(floats(8), device="cuda")
    assert gpu()["recount"] == gpu()["resident"] == before + 24 * MIB
    del managed, own
    assert gpu()["recount"] == gpu()["resident"] == before


@pytest.mark.real
def test_the_programs_own_cuda_tensors_make_room_too() -> None:
    tensors = fill(3, 64)
    assert innkeeper.stats()["evictions"] == 0
    own = torch.ones(floats(128), device="cuda")
    assert innkeeper.stats()["evictions"] > 0
    assert own.sum().item() == floats(128)
    assert [tensor[-1].item() for tensor in tensors] == [0.0, 1.0, 2.0]


@pytest.mark.real
def test_when_the_gpu_itself_is_full_the_allocation_is_tried_again() -> None:
    innkeeper.configure(nodes=nodes(2 << 30))
    tensors = fill(12, 64)
    assert innkeeper.stats()["evictions"] == 0
    held = torch.cuda.memory_reserved()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((held + 32 * MIB) / total)
    total_of_all = torch.zeros(floats(64), device="managed")
    for tensor in tensors:
        total_of_all.add_(tensor)
    assert innkeeper.stats()["evictions"] > 0
    assert total_of_all[0].item() == sum(range(12))


def test_what_fits_nowhere_is_refused_with_numbers_and_loses_nothing() -> None:
    kept = torch.arange(floats(64), device="managed", dtype=torch.float32)
    if PLAIN == "cuda":
        with pytest.raises(torch.OutOfMemoryError, match=r"cuda:0.*256.*MiB"):
            torch.ones(floats(512), device="cuda")
    innkeeper.manager().soft_placement = False
    try:
        with pytest.raises(torch.OutOfMemoryError, match=NODE):
            torch.ones(floats(512), device="managed")
    finally:
        innkeeper.manager().soft_placement = True
    assert kept[-1].item() == floats(64) - 1


@pytest.mark.real
def test_memory_that_another_stream_uses_is_not_reused() -> None:
    side = torch.cuda.Stream()
    tensor = torch.zeros(floats(8), device="cuda")
    address = tensor.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        tensor.record_stream(side)
    del tensor
    other = torch.zeros(floats(8), device="cuda")
    assert other.data_ptr() != address
    torch.cuda.synchronize()


@pytest.mark.real
def test_nothing_is_evicted_while_a_graph_is_captured() -> None:
    tensors = fill(3, 64)
    x = torch.ones(floats(8), device="cuda")
    torch.mul(x, 2)
    before = innkeeper.stats()["evictions"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        parts = [x * float(i) for i in range(8)]  # Together they exceed the budget.
    assert innkeeper.stats()["evictions"] == before
    graph.replay()
    assert parts[3].sum().item() == 3 * floats(8)
    assert tensors[2][0].item() == 2.0


def test_nodes_can_be_set_again_after_libraries_took_memory() -> None:
    """cuBLAS keeps its workspaces; plain tensors made a pair of them."""
    for device in (PLAIN, "managed"):
        x = torch.ones(64, 64, device=device, requires_grad=True)
        (x @ x).sum().backward()
        del x
    innkeeper.configure(nodes=nodes(BUDGET // 2))
    assert torch.ones(64, 64, device="managed").mm(torch.ones(64, 64, device="managed"))[0, 0].item() == 64


def test_a_smaller_budget_evicts_at_once() -> None:
    tensors = fill(3, 64)
    innkeeper.manager().set_budget(NODE, 96 * MIB)
    innkeeper.manager().reset_stats()  # Resets the peak of the larger budget.
    assert gpu()["resident"] <= 96 * MIB
    assert [tensor[0].item() for tensor in tensors] == [0.0, 1.0, 2.0]


START = "import innkeeper, torch; torch.ones(3, device='managed')"


@pytest.mark.real
@pytest.mark.parametrize(
    ("wanted", "said"),
    [("cuda:99", "cuda:99"), ("cuda:0:900000GiB", "the GPU has"), ("cuda:0,cuda:0", "named before")],
)
def test_a_gpu_that_is_not_there_is_one_clear_line(wanted: str, said: str) -> None:
    done = run_python(START, INNKEEPER_NODES=wanted)
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.real
def test_another_allocator_is_refused() -> None:
    done = run_python(START, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert done.returncode != 0
    assert "native allocator" in done.stderr


@pytest.mark.real
def test_automatic_nodes_are_the_visible_gpus_and_the_host() -> None:
    done = run_python(
        "import innkeeper, torch; torch.ones(3, device='managed'); print(*innkeeper.manager().nodes)",
        INNKEEPER_NODES="auto",
    )
    assert done.returncode == 0, done.stderr
    assert "cuda:0" in done.stdout
    assert "host" in done.stdout
