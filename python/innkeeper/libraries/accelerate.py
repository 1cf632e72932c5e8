"""accelerate: half precision on the managed device, and device maps that put a model there.

What it would need itself: ``"managed"`` in the list of ``Accelerator.__init__`` (``supported_device``), a
branch in ``get_grad_scaler``, and ``torch.accelerator`` in ``get_max_memory`` where it asks each vendor's
module in turn.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C
from innkeeper._register import DEVICE
from innkeeper.libraries.imports import add_to_lists, replace

SETTING = "ACCELERATE_TORCH_DEVICE"


def chosen() -> bool:
    """Whether accelerate, and what asks it, is to use the managed device."""
    return os.environ.get(SETTING) == DEVICE


def _grad_scaler(own: Any) -> Any:
    def get_grad_scaler(distributed_type: Any = None, **options: Any) -> Any:
        if not chosen() or str(distributed_type).endswith("FSDP"):
            return own(distributed_type, **options)
        return torch.amp.GradScaler(DEVICE, **options)

    return get_grad_scaler


def _max_memory(own: Any) -> Any:
    def get_max_memory(max_memory: Any = None) -> Any:
        memory = own(max_memory)
        if max_memory is not None or not chosen():
            return memory
        room = sum(int(node.budget) for node in _C.nodes() if node.kind != "disk")
        return {0: room} | {where: size for where, size in memory.items() if not isinstance(where, int)}

    return get_max_memory


def _adapt_accelerator(accelerator: ModuleType) -> None:
    add_to_lists(accelerator.Accelerator.__init__, DEVICE)


def _adapt_modeling(modeling: ModuleType) -> None:
    replace(modeling, "get_grad_scaler", _grad_scaler)
    replace(modeling, "get_max_memory", _max_memory)


AFTER = {"accelerate.accelerator": _adapt_accelerator, "accelerate.utils.modeling": _adapt_modeling}
