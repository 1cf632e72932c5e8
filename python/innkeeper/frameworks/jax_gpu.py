"""JAX: ``jax.default_device``, and the part of the memory that it takes when it starts. Never imports it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from innkeeper.gpus import gpus

if TYPE_CHECKING:
    from innkeeper.choice import Choice

_set_for: list[Choice] = []
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"


def prepare(choice: Choice) -> None:
    """Limits what JAX takes when it starts to the lease, unless the program has said how much itself."""
    if choice.memory is None or FRACTION in os.environ:
        return
    totals = [gpu.memory_total for gpu in gpus() if gpu.uuid in choice.uuids and gpu.memory_total]
    if totals:
        os.environ[FRACTION] = f"{min(1.0, choice.memory / max(totals)):.4f}"
        _set_for.append(choice)


def forget(choice: Choice) -> None:
    """Lifts the limit, for a JAX that starts later."""
    if choice in _set_for:
        _set_for.remove(choice)
        os.environ.pop(FRACTION, None)


def device(choice: Choice) -> Any:
    """JAX's device of the first GPU; ``None`` where JAX has no GPU."""
    jax = sys.modules["jax"]
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
