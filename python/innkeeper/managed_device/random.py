"""The random streams that the calling thread draws from: its experiment's, or else one for each device.

A stream does not depend on the node that computes.

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
    """Seeds the current device's stream. Negative seeds count from 2**64 down."""
    if not _is_in_bad_fork():
        _C.default_generator(_C.current_index()).manual_seed(int(seed) % (1 << 64))


def manual_seed_all(seed: int) -> None:
    """Seeds the streams of all devices. ``torch.manual_seed`` does this too."""
    if not _is_in_bad_fork():
        for index in range(_C.device_count()):
            _C.default_generator(index).manual_seed(int(seed) % (1 << 64))


def seed() -> None:
    """Seeds the current device's stream with a number from the operating system."""
    if not _is_in_bad_fork():
        _C.default_generator(_C.current_index()).seed()


def seed_all() -> None:
    """Seeds the streams of all devices with one number from the operating system."""
    if not _is_in_bad_fork():
        manual_seed_all(_C.default_generator(_C.current_index()).seed())


def initial_seed() -> int:
    """The seed that the current device's stream was last given."""
    return _C.default_generator(_C.current_index()).initial_seed()


def get_rng_state(device: Any = None) -> Tensor:
    """The stream's state, a CPU tensor of uint8."""
    return _C.default_generator(index_of(device)).get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Continues the stream from ``get_rng_state``'s result."""
    index = index_of(device)
    if not _is_in_bad_fork():
        _C.default_generator(index).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state_all(new_states: Sequence[Tensor]) -> None:
    """Restores states from ``get_rng_state_all``."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
