"""PyTorch: the current device, and its caching allocator's limit. Nothing here starts CUDA without need.

What would start it is put off until the program does, by the queue that ``torch.cuda.manual_seed`` uses, too.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from innkeeper import _C, visible

if TYPE_CHECKING:
    from innkeeper.choice import Choice

allocator_bytes = _C.allocator_bytes
"""What the caching allocator may have of a lease of so many bytes: the CUDA context has the rest."""


def _usable() -> bool:
    return torch.backends.cuda.is_built() and not torch.cuda._is_in_bad_fork()


def prepare(choice: Choice) -> None:
    """Limits PyTorch's memory on each GPU to what was leased, at once or when CUDA starts."""
    memory = choice.memory
    if memory is None or not _usable():
        return

    def limit() -> None:
        if not choice.lease.held:
            return
        for ordinal in choice.ordinals:
            total = torch.cuda.get_device_properties(ordinal).total_memory
            fraction = min(1.0, allocator_bytes(memory) / total)
            torch.cuda.set_per_process_memory_fraction(fraction, ordinal)

    torch.cuda._lazy_call(limit)


def enter(choice: Choice, stack: ExitStack) -> None:
    """Makes the first GPU the current one. Before CUDA is started ordinal 0 is that already."""
    if not _usable():
        return
    ordinal = choice.ordinal
    if torch.cuda.is_initialized() or ordinal != 0:
        stack.enter_context(torch.cuda.device(ordinal))


def forget(choice: Choice) -> None:
    """Lifts the limit on each GPU that CUDA still sees."""
    if choice.memory is None or not _usable() or not torch.cuda.is_initialized():
        return
    for uuid in choice.uuids:
        try:
            (ordinal,) = visible.ordinals([uuid])
        except RuntimeError:  # the card is lost, or CUDA was started with another one
            continue
        torch.cuda.set_per_process_memory_fraction(1.0, ordinal)
