"""The random stream that the calling thread draws from: its experiment's, or else the process's.

A stream does not depend on the node that computes, so "all devices" have one.

A forked child of a process whose runtime had started has no device. As in torch.cuda, seeding one there does
nothing, because workers of data loaders are told to seed everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from innkeeper import _C
from innkeeper.managed_device.device import _is_in_bad_fork, index_of
from torch import Tensor

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def manual_seed(seed: int) -> None:
    """Seeds the stream. ``torch.manual_seed`` does this too. Negative seeds count from 2**64 down."""
    if not _is_in_bad_fork():
        _C.manual_seed(int(seed) % (1 << 64))


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds the stream with a number from the operating system."""
    if not _is_in_bad_fork():
        _C.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed that the stream was last given."""
    return _C.initial_seed()


def get_rng_state(device: Any = None) -> Tensor:
    """The stream's state, a CPU tensor of uint8."""
    index_of(device)
    return _C.get_rng_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Continues the stream from ``get_rng_state``'s result."""
    index_of(device)
    if not _is_in_bad_fork():
        _C.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all (one) devices."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Sequence[Tensor]) -> None:
    """Sets what ``get_rng_state_all`` gave."""
    (state,) = new_states
    set_rng_state(state)
