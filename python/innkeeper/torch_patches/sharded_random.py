"""Random operators on distributed tensors (DTensor): replicas draw the same numbers, shards their own.

PyTorch reads a device's random state as Philox's seed and offset. Before such an operator each process adds
the offset of its shard, afterwards each adds that of the whole tensor. A managed stream has no offset to add
to, so here an offset makes another state of the first one.
"""

from __future__ import annotations

import hashlib
from types import ModuleType
from typing import Any

import torch
from innkeeper.integrations.imports import after_import, replace

_PHILOX_BYTES = 16


def install() -> None:
    """Has PyTorch read managed states, once it has its module for this."""
    after_import({"torch.distributed.tensor._random": _read_any_state}.get)


def _read_any_state(module: ModuleType) -> None:
    def reading(philox: Any) -> Any:
        return lambda state: philox(state) if state.numel() == _PHILOX_BYTES else DerivedState(state)

    replace(module, "_PhiloxState", reading)


class DerivedState:
    """A random state of any format, with the attributes of PyTorch's ``_PhiloxState``.

    ``state``: while ``offset`` is 0 the first state, a tensor of uint8; else one that is seeded by a hash of
    the first one and the offset. The same in every process.
    """

    def __init__(self, state: torch.Tensor) -> None:
        self.state = self._first = state.to("cpu")
        self._offset = 0

    @property
    def offset(self) -> torch.Tensor:
        """The increment of the first state: one element of int64."""
        return torch.tensor([self._offset])

    @offset.setter
    def offset(self, offset: Any) -> None:
        self._offset = int(offset)
        self.state = self._first
        if self._offset != 0:
            text = bytes(self._first.tolist()) + self._offset.to_bytes(8, "little")
            seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            self.state = torch.Generator().manual_seed(seed).get_state()
