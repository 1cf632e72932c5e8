"""Kernels that return a tensor that they keep, such as a cached table of positions, or one without memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import innkeeper  # noqa: F401
import pytest

import torch

TABLE = list(range(1000))
Make = Callable[[Callable[[torch.Tensor], torch.Tensor]], Callable[[torch.Tensor], torch.Tensor]]


@pytest.fixture
def operator() -> Iterator[Make]:
    """Makes an operator from a kernel for hosts."""
    library = torch.library.Library("innkeeper_keeps", "DEF")
    library.define("op(Tensor x) -> Tensor")

    def make(kernel):
        library.impl("op", kernel, "CPU")
        return torch.ops.innkeeper_keeps.op

    yield make
    library._destroy()


@pytest.mark.parametrize("first_to_go", [0, 1])
def test_a_kept_tensor_outlives_all_results_of_it(
    configure: Callable[[str], None], operator: Make, first_to_go: int
):
    configure("host:64MiB")
    kept = torch.tensor(TABLE)
    op = operator(lambda x: kept)
    x = torch.ones(4, device="managed")
    results = [op(x), op(x), op(x)]
    for result in results:
        assert result.cpu().tolist() == TABLE
    results.pop(first_to_go)
    gc.collect()
    while results:
        assert results[-1].cpu().tolist() == TABLE
        results.pop()
        gc.collect()
    other = [torch.full((1000,), 7) for _ in range(64)]  # Would take the memory.
    assert kept.tolist() == TABLE
    assert op(x).cpu().tolist() == TABLE
    del other


def test_each_result_has_bytes_of_its_own(configure: Callable[[str], None], operator: Make):
    configure("host:64MiB")
    kept = torch.tensor(TABLE)
    op = operator(lambda x: kept)
    x = torch.ones(4, device="managed")
    a = op(x)
    b = op(x)
    b.add_(1)
    assert a.cpu().tolist() == TABLE


def test_a_kept_tensor_is_returned_on_many_threads(configure: Callable[[str], None], operator: Make):
    configure("host:64MiB")
    kept = torch.tensor(TABLE)
    op = operator(lambda x: kept)

    def use(_: int) -> bool:
        x = torch.ones(4, device="managed")
        return all(op(x).cpu().tolist() == TABLE for _ in range(50))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(16)))
    gc.collect()
    other = [torch.full((1000,), 7) for _ in range(64)]
    assert kept.tolist() == TABLE
    del other


def test_a_tensor_without_memory_becomes_one_with_zeros(configure: Callable[[str], None], operator: Make):
    configure("host:64MiB")
    op = operator(lambda x: torch._efficientzerotensor(5))
    result = op(torch.ones(4, device="managed"))
    assert (result + 1).cpu().tolist() == [1.0] * 5
    assert result.add_(2).cpu().tolist() == [2.0] * 5
