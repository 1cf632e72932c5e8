"""Plans price the kernels of a GPU, which nobody times, by their work."""

from __future__ import annotations

import innkeeper

import torch
from torch import nn


def test_periods_have_seconds_and_a_bound() -> None:
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).to("managed")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 1024, device="managed")
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    stats = innkeeper.stats()
    assert stats["planned_rounds"] > 0
    period = stats["round"]
    # Six products of each layer, at the rates that the driver's report of eight multiprocessors comes to: at
    # least as long as an H100's whole, and no longer than a second.
    flops = 8 * 3 * 2 * 64 * 1024 * 1024
    assert flops / 989e12 < period["kernel_seconds"] < 1
    assert period["seconds"] > 0 and stats["time_bound"] >= period["kernel_seconds"]
