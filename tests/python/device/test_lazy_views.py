"""Views that PyTorch conjugates or negates at each read: bitwise equal, the signs of zeros included."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import torch
from torch import Tensor

VALUES = [0.0, -0.0, 1.0, -1.0, 2.5, float("inf")]
Step = Callable[[Tensor], Tensor]
VIEWS: list[Step] = [
    lambda x: x.conj(),
    torch._neg_view,
    lambda x: x.imag if x.is_complex() else x,
    lambda x: x.real if x.is_complex() else x,
    lambda x: x.t() if x.dim() == 2 else x,
    lambda x: x[::2] if x.dim() else x,
    lambda x: x[0] if x.dim() else x,
]
READS: dict[str, Step] = {
    "cpu": lambda x: x.cpu(),
    "cast": lambda x: x.to("cpu", torch.complex128 if x.is_complex() else torch.float64),
    "copied out": lambda x: torch.empty(x.shape, dtype=x.dtype).copy_(x),
    "copied": lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x).cpu(),
    "cloned": lambda x: x.clone().cpu(),
    "contiguous": lambda x: x.contiguous().cpu(),
    "resolved": lambda x: x.resolve_neg().resolve_conj().cpu(),
    "as numbers": lambda x: torch.tensor(x.tolist(), dtype=x.dtype),
}


def bits(x: Tensor) -> list[int]:
    x = x.resolve_conj().resolve_neg()
    x = torch.view_as_real(x) if x.is_complex() else x
    whole = {torch.float32: torch.int32, torch.float64: torch.int64}[x.dtype]
    return x.contiguous().view(whole).flatten().tolist()


@pytest.mark.parametrize("read", READS)
def test_zeros_keep_their_signs(read: str):
    draw = random.Random(read)
    for _ in range(100):
        real, imaginary = (
            torch.tensor([[draw.choice(VALUES) for _ in range(4)] for _ in range(4)]) for _ in "ri"
        )
        x = torch.complex(real, imaginary)
        managed = x.to("managed")
        chain = [draw.choice(VIEWS) for _ in range(draw.randint(1, 4))]
        for view in chain:
            x, managed = view(x), view(managed)
        assert bits(READS[read](managed)) == bits(READS[read](x)), [VIEWS.index(view) for view in chain]
