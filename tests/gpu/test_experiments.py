"""Two experiments at a time on a GPU that holds neither whole: each ends as it does alone."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import innkeeper
import trainings
from gpu_device import NODE, nodes, record
from models import Gpt, descend, hash_of, loss_of_words

import torch

STEPS = 8


def experiment(number: int, start: Barrier | None = None) -> tuple[list[float], str]:
    """With dropout: the random stream is the experiment's, with any concurrent experiments."""
    with innkeeper.experiment(f"number {number}"):
        torch.managed.manual_seed(number)
        first = torch.Generator().manual_seed(number)
        model = Gpt(dropout=0.2, **trainings.GPT).to("managed")
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.randn(weight.shape, generator=first) * 0.05)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        if start is not None:
            start.wait()
        losses = [
            descend(optimizer, loss_of_words(model, "managed", 96, (4, 33), first)) for _ in range(STEPS)
        ]
        return losses, hash_of(model)


def test_two_experiments_share_a_gpu() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        innkeeper.configure(nodes=nodes(4 << 30))
        experiment(1)  # Libraries take their memory at their first use.
        gc.collect()
        innkeeper.manager().reset_stats()
        alone = [experiment(1), experiment(2)]
        gc.collect()
        peak = innkeeper.stats()["nodes"][NODE]["peak"]
        innkeeper.configure(nodes=nodes(peak * 8 // 10))
        innkeeper.manager().reset_stats()
        start = Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda number: experiment(number, start), (1, 2)))
        stats = innkeeper.stats()
    finally:
        torch.use_deterministic_algorithms(False)
    record("experiments", equal_to_alone=together == alone, evictions=stats["evictions"], peak_of_one=peak)
    assert together == alone
    assert alone[0] != alone[1]
    assert stats["evictions"] > 0
