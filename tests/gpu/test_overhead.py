"""Cost of the managed device when everything fits: a training step compared with one of plain tensors.

Paired and interleaved in one process. A report: nothing here fails for being slow.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import innkeeper
import pytest
from gpu_device import PLAIN, REAL, nodes, record, seconds_of

import torch
from torch import nn

SIZES = {"small": (256, 8, 32), "large": (2048, 8, 2048)} if REAL else {"small": (32, 2, 8)}
ROUNDS, STEPS = (15, 10) if REAL else (3, 2)


def make_step(device: str, width: int, layers: int, batch: int) -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs = torch.randn(batch, width).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("size", list(SIZES))
def test_a_training_step_with_space_for_all(size: str) -> None:
    innkeeper.configure(nodes=nodes(8 << 30))
    plain, managed = make_step(PLAIN, *SIZES[size]), make_step("managed", *SIZES[size])
    for step in (plain, managed):
        seconds_of(step, STEPS)
    pairs = []
    for turn in range(ROUNDS):
        if turn % 2 == 0:  # A slow moment of the machine affects both.
            pairs.append((seconds_of(plain, STEPS), seconds_of(managed, STEPS)))
        else:
            pairs.append((seconds_of(managed, STEPS), seconds_of(plain, STEPS))[::-1])
    ratios = sorted(m / p for p, m in pairs)
    record(
        "overhead",
        **{
            size: {
                "plain_ms": statistics.median(p for p, _ in pairs) * 1e3,
                "managed_ms": statistics.median(m for _, m in pairs) * 1e3,
                "ratio_median": statistics.median(ratios),
                "ratio_worst": ratios[-1],
            }
        },
    )
    assert innkeeper.stats()["evictions"] == 0
