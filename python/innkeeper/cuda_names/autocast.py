"""Autocast: PyTorch keeps its state by device, and operators look for the managed device's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from innkeeper._register import DEVICE
from innkeeper.cuda_names.put import put

_BY_NAME = ["is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"]


def install() -> None:
    """Reads ``cuda`` as the managed device in everything that autocast is asked by name. Once."""
    for name in _BY_NAME:
        put(torch, **{name: _by_name(getattr(torch, name))})
    put(
        torch,
        get_autocast_gpu_dtype=lambda: torch.get_autocast_dtype(DEVICE),
        set_autocast_gpu_dtype=lambda dtype: torch.set_autocast_dtype(DEVICE, dtype),
    )
    put(torch._C, _is_autocast_available=_by_name(torch._C._is_autocast_available))
    put(torch.cuda.amp.common, amp_definitely_not_available=lambda: False)


def _named(device: Any) -> Any:
    return DEVICE if isinstance(device, str) and device.partition(":")[0] == "cuda" else device


def _by_name(original: Callable[..., Any]) -> Callable[..., Any]:
    """Without a device, or with a bool alone, the old forms mean CUDA."""

    @functools.wraps(original)
    def asked(*args: Any) -> Any:
        if not args or isinstance(args[0], bool):
            return original(DEVICE, *args)
        return original(_named(args[0]), *args[1:])

    return asked
