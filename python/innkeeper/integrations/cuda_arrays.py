"""For CuPy and Numba: their errors about a managed tensor name the call that returns its memory.

Both ask for CUDA's array interface. CuPy passes an object without it on to NumPy, and Numba rejects it.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C
from innkeeper.integrations.imports import Adapt, replace
from innkeeper.torch_patches.device_names import no_address


def _refusing(own: Any) -> Any:
    @functools.wraps(own)
    def taken(*arguments: Any, **named: Any) -> Any:
        for x in (*arguments, *named.values()):
            if isinstance(x, torch.Tensor) and _C.is_managed(x.device):
                raise TypeError(f"{own.__name__} of {no_address(x)}")
        return own(*arguments, **named)

    return taken


def refuse(*names: str) -> Adapt:
    """Has a module's functions of these names refuse managed tensors."""

    def adapt(module: ModuleType) -> None:
        for name in names:
            replace(module, name, _refusing)

    return adapt
