"""CuPy and Numba: who gives them a managed tensor is told what gives them its memory.

Both ask for CUDA's array interface, and what has none CuPy takes for NumPy's, and Numba for no array. What
they would need themselves: to say which object it was, with the reason that its ``AttributeError`` gives.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C, by_name
from innkeeper.libraries.imports import replace

_CUPY = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "from_dlpack")
_NUMBA = ("as_cuda_array", "to_device")


def _refusing(own: Any) -> Any:
    @functools.wraps(own)
    def taken(*arguments: Any, **named: Any) -> Any:
        for x in (*arguments, *named.values()):
            if isinstance(x, torch.Tensor) and _C.is_managed(x.device):
                raise TypeError(f"{own.__name__} of {by_name.no_address(x)}")
        return own(*arguments, **named)

    return taken


def _adapt(names: tuple[str, ...], module: ModuleType) -> None:
    for name in names:
        replace(module, name, _refusing)


AFTER = {"cupy": functools.partial(_adapt, _CUPY), "numba.cuda.api": functools.partial(_adapt, _NUMBA)}
