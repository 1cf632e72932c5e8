"""Subjects of architectures.py: a model of a library, with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Subject(NamedTuple):
    """One model, small."""

    make: Callable[[], torch.nn.Module]  # each time of the same weights
    inputs: Any  # tensors of the CPU, in whatever they lie
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]  # Loss of the model on the inputs.


class Candidate(NamedTuple):
    """One model by name. A process of its own calls `prepare`."""

    name: str
    task: str
    prepare: Callable[[], Subject]


def seeded(make: Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    """Makes the same weights each time."""

    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        return make()

    return made


def drawn(*shape: int) -> torch.Tensor:
    """Numbers for an input, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))
