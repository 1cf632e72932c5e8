"""What the managed device costs on a card when everything fits: a step beside one of plain CUDA tensors.

Paired and interleaved in one process. The numbers are printed (pytest -s); the limit only catches a step
gone wrong, such as a copy or a wait in every operator.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import innkeeper

import torch
from torch import nn

WIDTH, LAYERS, BATCH = 1024, 8, 256
ROUNDS, STEPS = 15, 5
LIMIT = 2.0


def make_step(device: str) -> Callable[[], None]:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    inputs = torch.randn(BATCH, WIDTH).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / STEPS


def test_a_training_step_with_room_for_all() -> None:
    innkeeper.configure(nodes="cuda:0:2GiB,host:4GiB")
    plain, managed = make_step("cuda"), make_step("managed")
    for step in (plain, managed):
        seconds(step)
    pairs = [(seconds(plain), seconds(managed)) for _ in range(ROUNDS)]
    ratios = sorted(m / p for p, m in pairs)
    print(
        f"\nstep: plain {statistics.median(p for p, _ in pairs) * 1e3:.2f} ms, managed "
        f"{statistics.median(m for _, m in pairs) * 1e3:.2f} ms, ratio {statistics.median(ratios):.2f} "
        f"(p90 {ratios[int(len(ratios) * 0.9)]:.2f})"
    )
    assert innkeeper.stats()["evictions"] == 0
    assert statistics.median(ratios) < LIMIT
