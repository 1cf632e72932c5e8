"""Fixtures and helpers of tests whose working set exceeds their nodes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import innkeeper
import pytest
from accelerators import here

import torch
from torch import Tensor

SIMULATED = (here("sim:0"), here("sim:1"))
Squeeze = Callable[..., None]


@pytest.fixture
def squeeze() -> Iterator[Squeeze]:
    """Gives a function that cuts each simulated node's budget to a number of bytes, for this test.

    The test fails if nothing was evicted: then it would have shown nothing.
    """
    gc.collect()
    manager = innkeeper.manager()
    before = {name: manager.budget(name) for name in SIMULATED}
    manager.reset_stats()

    def to(nbytes: int, second: int | None = None) -> None:
        manager.set_budget(SIMULATED[0], nbytes)
        manager.set_budget(SIMULATED[1], nbytes if second is None else second)

    yield to
    evictions = innkeeper.stats()["evictions"]
    for name, nbytes in before.items():
        manager.set_budget(name, nbytes)
    assert evictions > 0, "nothing was evicted, so the test shows nothing"


def flood(nbytes: int, pieces: int = 8) -> float:
    """Allocates and writes `nbytes` of other tensors, so that unused tensors have to leave."""
    others = [torch.full((nbytes // pieces // 4,), float(n), device="managed") for n in range(pieces)]
    return sum(x.sum().item() for x in others)


def same(managed: Tensor, plain: Tensor) -> bool:
    """Whether both are bitwise equal, and of the same shape, strides and dtype."""
    back = managed.detach().cpu()
    return (
        managed.shape == plain.shape
        and managed.stride() == plain.stride()
        and back.dtype == plain.dtype
        and back.contiguous()
        .view(-1)
        .view(torch.uint8)
        .equal(plain.detach().contiguous().view(-1).view(torch.uint8))
    )
