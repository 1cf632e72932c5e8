"""Autocast's old functions that name no device: they mean CUDA, which is the managed device here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from innkeeper._names import DEVICE
from innkeeper.cuda_compat.put import put


def install() -> None:
    """Has them mean the managed device. Called once per process."""
    for name in ("is_autocast_enabled", "set_autocast_enabled"):
        put(torch, **{name: _of_managed(getattr(torch, name))})
    put(
        torch,
        get_autocast_gpu_dtype=lambda: torch.get_autocast_dtype(DEVICE),
        set_autocast_gpu_dtype=lambda dtype: torch.set_autocast_dtype(DEVICE, dtype),
    )
    put(torch.cuda.amp.common, amp_definitely_not_available=lambda: False)


def _of_managed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def asked(*args: Any) -> Any:
        nameless = not args or isinstance(args[0], bool)
        return original(DEVICE, *args) if nameless else original(*args)

    return asked
