"""Subjects of architectures.py: a model of a library, with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Subject(NamedTuple):
    """One model, small."""

    make: Callable[[], torch.nn.Module]  # Makes the model, each time with the same weights.
    inputs: Any  # Tensors of the CPU, in any nesting.
    loss: Callable[[torch.nn.Module, Any], torch.Tensor]  # Loss of the model on the inputs.


class Candidate(NamedTuple):
    """One model by name. A process of its own calls `prepare`."""

    name: str
    task: str
    prepare: Callable[[], Subject]


def seeded(make: Callable[[], torch.nn.Module]) -> Callable[[], torch.nn.Module]:
    """Makes a model with the same weights each time."""

    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        return make()

    return made


def drawn(*shape: int) -> torch.Tensor:
    """Numbers of an input, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))
