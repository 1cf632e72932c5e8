"""Two threads share a GPU that cannot hold both: each gets the bits that it gets alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import innkeeper
from gpu_device import NODE, PLAIN, REAL, nodes

import torch
from torch import nn

STEPS = 10


def train(seed: int) -> list[torch.Tensor]:
    """A perceptron with 42 MiB of weights, and as much each of gradients and of momentum."""
    with innkeeper.experiment(f"seed {seed}"):
        torch.managed.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 16)
        ).to("managed")
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(0, 0.02)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, foreach=True)
        inputs = torch.randn(64, 512, device="managed")
        targets = torch.randn(64, 16, device="managed")
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        return [weight.detach().cpu() for weight in model.parameters()]


def test_two_threads_train_as_if_alone() -> None:
    innkeeper.configure(nodes=nodes(128 << 20))
    alone = [train(seed) for seed in (1, 2)]
    innkeeper.manager().reset_stats()
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(train, (1, 2)))
    assert innkeeper.stats()["evictions"] > 0
    for expected, weights in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(expected, weights, strict=True))
    assert not torch.equal(together[0][0], together[1][0])


def test_two_threads_allocate_and_free_without_losing_count() -> None:
    def churn(seed: int) -> float:
        total = 0.0
        for i in range(60):
            managed = torch.full((8 << 18,), float(seed), device="managed")
            own = torch.full((4 << 18,), 1.0, device=PLAIN)
            total += managed[i].item() + own[i].item()
        return total

    innkeeper.configure(nodes=nodes(48 << 20))
    before = innkeeper.stats()["nodes"][NODE]["recount"]
    with ThreadPoolExecutor(2) as pool:
        totals = list(pool.map(churn, (1, 2)))
    assert totals == [60 * 2.0, 60 * 3.0]
    if REAL:
        torch.cuda.synchronize()
    assert innkeeper.stats()["nodes"][NODE]["recount"] == before
