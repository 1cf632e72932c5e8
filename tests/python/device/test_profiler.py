"""PyTorch's profiler shows the engine's copies together with the operators that caused them."""

from __future__ import annotations

from collections.abc import Callable

import innkeeper
import pytest
from torch.profiler import ProfilerActivity, profile

import torch


def copies(profiled: profile) -> dict[str, int]:
    return {row.key: row.count for row in profiled.key_averages() if row.key.startswith("innkeeper::")}


@pytest.mark.parametrize("nodes", ["sim:1x4MiB,host:1GiB", "sim:2x4MiB,host:1GiB"])
def test_copies_are_events_under_the_operators_that_wait_for_them(
    configure: Callable[[str], None], nodes: str
):
    configure(nodes)
    kept = [torch.full((1 << 18,), float(i), device="managed") for i in range(12)]  # Each has 1 MiB.
    innkeeper.manager().reset_stats()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        for x in kept:
            x.add_(1)
        torch.managed.synchronize()
    stats = innkeeper.stats()
    fetches = [event for event in profiled.events() if event.name.startswith("innkeeper::fetch host to sim:")]
    backs = [event for event in profiled.events() if event.name.startswith("innkeeper::write_back sim:")]
    assert len(fetches) == stats["bytes_fetched"] >> 20 > 0
    assert len(backs) == stats["bytes_written_back"] >> 20 > 0
    between = sum(event.name.startswith("innkeeper::between sim:") for event in profiled.events())
    assert between == stats["bytes_between"] >> 20
    assert sum(copies(profiled).values()) == len(fetches) + len(backs) + between
    assert all(event.cpu_parent is not None for event in fetches)
    assert {event.cpu_parent.name for event in fetches} == {"aten::add_"}
    assert {event.concrete_inputs[0] for event in fetches} == {1 << 20}
    del fetches, backs, profiled, kept, x


def test_nothing_is_recorded_without_a_profiler(configure: Callable[[str], None]):
    configure("sim:1x4MiB,host:1GiB")
    kept = [torch.ones(1 << 18, device="managed") for _ in range(6)]
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        pass
    for x in kept:
        x.add_(1)
    assert copies(profiled) == {}
