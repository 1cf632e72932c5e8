"""Managed tensors in a program that works on CUDA streams and graphs of its own."""

from __future__ import annotations

import innkeeper
import pytest
from gpu_device import MIB, nodes

import torch

pytestmark = pytest.mark.real
COUNT = 4 * MIB // 4
LONG = 100_000_000  # Clock ticks of the GPU: tens of milliseconds.


def test_a_result_of_another_stream_is_read_when_it_is_there() -> None:
    side = torch.cuda.Stream()
    source = torch.zeros(COUNT, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        source.fill_(7.0)
        managed = source.to("managed")  # Needs no wait in the program: one stream is in order.
    assert managed.sum().item() == 7.0 * COUNT


def test_another_stream_goes_on_after_what_was_asked_of_managed_tensors() -> None:
    side = torch.cuda.Stream()
    managed = torch.zeros(COUNT, device="managed")
    target = torch.zeros(COUNT, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(LONG)
        managed += 3.0
        target.copy_(managed)
        target *= 2.0
        assert target.sum().item() == 6.0 * COUNT


def test_memory_freed_on_another_stream_is_not_overwritten_early() -> None:
    innkeeper.configure(nodes=nodes(64 * MIB))
    side = torch.cuda.Stream()
    for i in range(12):
        with torch.cuda.stream(side if i % 2 else torch.cuda.default_stream()):
            torch.cuda._sleep(LONG // 20)
            parts = [torch.full((COUNT,), float(i + k), device="managed") for k in range(24)]  # 96 MiB
        for k, part in enumerate(parts):
            assert part.amin().item() == part.amax().item() == float(i + k)
    assert innkeeper.stats()["evictions"] > 0


def test_resident_memory_may_be_written_on_another_stream() -> None:
    side = torch.cuda.Stream()
    managed = torch.zeros(COUNT, device="managed")
    with torch.cuda.stream(side), innkeeper.resident(managed, write=True) as real:
        torch.cuda._sleep(LONG)
        real.fill_(5.0)
    assert managed.sum().item() == 5.0 * COUNT


def test_managed_tensors_in_a_graph_are_refused_in_one_line() -> None:
    managed = torch.ones(COUNT, device="managed")
    own = torch.ones(COUNT, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(RuntimeError, match="while a CUDA graph is captured"):
            managed.mul_(2.0)
        own.mul_(2.0)
    graph.replay()
    assert own[0].item() == 2.0
    assert managed[0].item() == 1.0
