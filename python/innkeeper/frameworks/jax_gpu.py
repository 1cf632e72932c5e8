"""JAX: ``jax.default_device``, and the part of the memory that it takes when it starts. Never imports it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from innkeeper import visible
from innkeeper.frameworks.torch_gpu import allocator_bytes
from innkeeper.frameworks.variables import write
from innkeeper.gpus import gpus

if TYPE_CHECKING:
    from innkeeper.choice import Choice

FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"

_limiting: list[Choice] = []


def prepare(choice: Choice) -> None:
    """Limits JAX's memory to the lease, at its start or as needed. Settings of the program stay."""
    if choice.memory is not None:
        _limiting.append(choice)
        _limit()


def forget(choice: Choice) -> None:
    """Limits it to the other choices' leases, or lifts the limit, for a JAX that starts later."""
    if choice in _limiting:
        _limiting.remove(choice)
        _limit()


def _limit() -> None:
    # One part serves all of JAX's GPUs: the least sum of the bytes promised to all choices of one GPU.
    with visible._lock:
        held = [choice for choice in _limiting if choice.lease.held]
        parts = []
        for gpu in gpus():
            promised = sum(choice.memory or 0 for choice in held if gpu.uuid in choice.uuids)
            if promised and gpu.memory_total:
                parts.append(allocator_bytes(promised) / gpu.memory_total)
        write(FRACTION, f"{min(1.0, *parts):.4f}" if parts else None)
        said = [choice.growth for choice in held if choice.growth is not None]
        write(PREALLOCATE, None if not said else "false" if said[-1] else "true")


def device(choice: Choice) -> Any:
    """JAX's device of the first GPU, or the CPU; ``None`` where JAX has no GPU."""
    jax = sys.modules["jax"]
    if not choice.uuids:
        return jax.local_devices(backend="cpu")[0]
    try:
        found = jax.local_devices(backend="gpu")
    except RuntimeError:  # JAX without CUDA
        return None
    ordinal = choice.ordinal
    matching = [each for each in found if getattr(each, "local_hardware_id", None) == ordinal]
    return matching[0] if matching else found[ordinal] if ordinal < len(found) else None


def enter(choice: Choice, stack: ExitStack) -> None:
    """Enters ``jax.default_device``."""
    chosen = device(choice)
    if chosen is not None:
        stack.enter_context(sys.modules["jax"].default_device(chosen))
