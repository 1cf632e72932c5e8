"""PyTorch: the current device, and its caching allocator's limit. Nothing here starts CUDA without need.

Calls that would start it wait until the program starts it, in the queue that ``torch.cuda.manual_seed`` uses.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from innkeeper import _C, placement, visible
from innkeeper.managed_device.device import device

if TYPE_CHECKING:
    from innkeeper.choice import Choice

allocator_bytes = _C.allocator_bytes
"""Bytes of a lease that a framework's allocator may have; the CUDA context has the rest."""

_limiting: list[Choice] = []
_lock = threading.RLock()  # so that the limit that is set last knows all of them


def _usable() -> bool:
    return torch.backends.cuda.is_built() and not torch.cuda._is_in_bad_fork()


def prepare(choice: Choice) -> None:
    """Limits PyTorch's memory on each GPU to the leased bytes, or takes them, at once or when CUDA starts."""
    if choice.memory is None or choice.simulated or not _usable():
        return
    _limiting.append(choice)

    def limit() -> None:
        if choice in _limiting and choice.lease.held:
            for uuid, ordinal in zip(choice.uuids, choice.ordinals, strict=True):
                _limit(uuid, ordinal)
                if choice.growth is False:
                    _take(allocator_bytes(choice.memory or 0), ordinal)

    torch.cuda._lazy_call(limit)


def _limit(uuid: str, ordinal: int) -> None:
    # The allocator has one limit for each GPU, so it is the sum of the bytes promised to that GPU's choices.
    with _lock:
        promised = sum(each.memory or 0 for each in _limiting if uuid in each.uuids and each.lease.held)
        total = torch.cuda.get_device_properties(ordinal).total_memory
        fraction = min(1.0, allocator_bytes(promised) / total) if promised else 1.0
        torch.cuda.set_per_process_memory_fraction(fraction, ordinal)


def _take(nbytes: int, ordinal: int) -> None:
    # Memory that was allocated and freed stays with the caching allocator.
    more = nbytes - torch.cuda.memory_reserved(ordinal)
    if more > 0:
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(more, ordinal))


def enter(choice: Choice, stack: ExitStack) -> None:
    """Makes the first GPU the current one. Before CUDA is started ordinal 0 is that already."""
    if choice.simulated:
        return _enter_simulated(choice, stack)
    if not choice.uuids or not _usable():
        return
    ordinal = choice.ordinal
    if torch.cuda.is_initialized() or ordinal != 0:
        stack.enter_context(torch.cuda.device(ordinal))


def _enter_simulated(choice: Choice, stack: ExitStack) -> None:
    if choice.ordinal == 0 and not _C.started():
        return  # The device that starts later has the chosen GPUs alone, and this one first.
    if _C.has_device_per_node():
        stack.enter_context(device(choice.ordinal))
    else:
        stack.enter_context(placement.on(_C.simulated_node(choice.uuids[0])))


def forget(choice: Choice) -> None:
    """Takes its part off the limit of each GPU that CUDA still sees; the last choice lifts it."""
    if choice not in _limiting:
        return
    _limiting.remove(choice)
    if not _usable() or not torch.cuda.is_initialized():
        return
    for uuid in choice.uuids:
        try:
            (ordinal,) = visible.ordinals([uuid])
        except RuntimeError:  # the GPU is lost, or CUDA was started with another one
            continue
        _limit(uuid, ordinal)
