"""Copies run beside kernels: read off a profile of the card, not off our own counters."""

from __future__ import annotations

import re
from typing import NamedTuple

import innkeeper
import models
import pytest
import trainings
from card import MIB, NODE, nodes, record, synchronize
from torch.profiler import ProfilerActivity, profile

import torch

pytestmark = pytest.mark.real


class Span(NamedTuple):
    begin: float  # microseconds
    end: float


def union(spans: list[Span]) -> list[Span]:
    """The same moments as spans that do not touch."""
    joined: list[Span] = []
    for span in sorted(spans):
        if joined and span.begin <= joined[-1].end:
            joined[-1] = Span(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def common_length(ones: list[Span], others: list[Span]) -> float:
    """Microseconds that lie in both."""
    ones, others = union(ones), union(others)
    total, i, k = 0.0, 0, 0
    while i < len(ones) and k < len(others):
        total += max(0.0, min(ones[i].end, others[k].end) - max(ones[i].begin, others[k].begin))
        if ones[i].end < others[k].end:
            i += 1
        else:
            k += 1
    return total


def length(spans: list[Span]) -> float:
    return sum(span.end - span.begin for span in union(spans))


class Seen(NamedTuple):
    kernels: list[Span]
    copies: list[Span]  # between the host and the card
    pinned: int  # of those copies, from or to page-locked memory
    pageable: int


def read(profiler: profile) -> Seen:
    kernels, copies, pinned, pageable = [], [], 0, 0
    for event in profiler.events():
        if event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        span = Span(event.time_range.start, event.time_range.end)
        if re.match(r"Memcpy (HtoD|DtoH)", event.name):
            copies.append(span)
            pinned += "Pinned" in event.name
            pageable += "Pageable" in event.name
        elif not event.name.startswith(("Memcpy", "Memset")):
            kernels.append(span)
    return Seen(kernels, copies, pinned, pageable)


def test_a_prefetch_runs_beside_a_kernel() -> None:
    innkeeper.configure(nodes=nodes(2 << 30))
    wanted = torch.ones(256 * MIB // 4, device="managed")
    innkeeper.evict(wanted)
    x = torch.randn(4096, 4096, device="managed")
    (x @ x).sum()  # libraries are loaded
    synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        # Before the kernels: a copy comes after all that the compute queue holds when it is asked for, which
        # may still use the memory that it goes to.
        innkeeper.prefetch(wanted, NODE)
        y = x
        for _ in range(20):  # tens of milliseconds; the copy takes five or more
            y = x @ y
        synchronize()
    assert NODE in innkeeper.where(wanted)
    seen = read(profiler)
    large = [span for span in seen.copies if span.end - span.begin > 1000]
    beside = common_length(large, seen.kernels) / length(large)
    record("overlap", prefetch_beside_kernels=beside, prefetch_gib_s=0.25 / (length(large) / 1e6))
    assert beside > 0.5
    assert wanted[-1].item() == 1.0


def test_a_training_step_short_of_memory_copies_beside_its_kernels() -> None:
    innkeeper.configure(nodes=nodes(2 << 30))
    wide = trainings.GPT | {"width": 1024, "layers": 8}

    def train(steps: int) -> None:
        models.train_gpt("managed", steps, dropout=0.0, foreach=True, **wide)

    train(2)
    peak = innkeeper.stats()["nodes"][NODE]["peak"]
    innkeeper.configure(nodes=nodes(peak * 7 // 10))
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        train(4)
        synchronize()
    stats = innkeeper.stats()
    assert stats["evictions"] > 0
    seen = read(profiler)
    record(
        "overlap",
        training_copies_beside_kernels=common_length(seen.copies, seen.kernels) / length(seen.copies),
        training_copy_ms=length(seen.copies) / 1e3,
        training_kernel_ms=length(seen.kernels) / 1e3,
        training_copies_pinned=seen.pinned,
        training_copies_pageable=seen.pageable,
        training_bytes_fetched=stats["bytes_fetched"],
        training_bytes_written_back=stats["bytes_written_back"],
    )
    assert seen.pinned > 0  # the pageable ones: batches, losses and the weights that are hashed at the end
    assert common_length(seen.copies, seen.kernels) > 0
