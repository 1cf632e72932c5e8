"""The effect of a choice on each framework, one file each. A framework that is not imported is left alone.

Each has ``prepare(choice)``, called when the choice was made, ``enter(choice, stack)``, called at ``with``,
and may have ``forget(choice)``, called when it ends.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING

from innkeeper.frameworks import jax_gpu, tensorflow_gpu, torch_gpu

if TYPE_CHECKING:
    from innkeeper.choice import Choice

_OURS: dict[str, ModuleType] = {"torch": torch_gpu, "tensorflow": tensorflow_gpu, "jax": jax_gpu}


def _in_use() -> list[ModuleType]:
    return [ours for name, ours in _OURS.items() if name in sys.modules]


def prepare(choice: Choice) -> None:
    """Limits memory."""
    for ours in _in_use():
        ours.prepare(choice)


def enter(choice: Choice, stack: ExitStack) -> None:
    """Makes the first GPU the current one, until ``stack`` is closed."""
    for ours in _in_use():
        ours.enter(choice, stack)


def forget(choice: Choice) -> None:
    """Lifts the limits, each even if another framework fails at it."""
    with ExitStack() as each:
        for ours in _in_use():
            if hasattr(ours, "forget"):
                each.callback(ours.forget, choice)
