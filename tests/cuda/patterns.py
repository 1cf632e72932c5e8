"""Tensors whose bytes identify them."""

from __future__ import annotations

from typing import Any

import innkeeper
from fake import MIB

import torch


def pattern(number: int, mib: int = 8) -> torch.Tensor:
    """A tensor on the host that differs from every other number's at each element."""
    return torch.arange(mib * MIB // 4, dtype=torch.int32) * -1640531535 + number * 977


def many(count: int, mib: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of a host tensor and the same as a managed tensor."""
    originals = [pattern(i, mib) for i in range(count)]
    return [(original, original.to("managed")) for original in originals]


def check(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for i, (original, managed) in enumerate(pairs):
        assert torch.equal(managed.cpu(), original), i


def node(name: str = "cuda:0") -> dict[str, Any]:
    return innkeeper.stats()["nodes"][name]
