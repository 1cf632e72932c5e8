"""Checkpointed random operators in compiled graphs: the backward recomputes them with their former state.

PyTorch has two operators for it, which ask the device's type for its state; they get the managed device's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._prims import rng_prims
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

import torch
from innkeeper import managed_device
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import cell, item, patch, put

_PATH = "torch._prims.rng_prims"


def install() -> None:
    """Tells PyTorch. Once."""
    save, run = rng_prims.run_and_save_rng_state, rng_prims.run_with_rng_state
    chosen = torch._C.DispatchKey.BackendSelect
    original = save.py_kernels[chosen]
    select = _or_managed(original, _run_and_save, first=0)
    put(
        f"{_PATH}.run_and_save_rng_state.py_kernels[BackendSelect]",
        select,
        item(save.py_kernels, chosen),
    )
    # Tracing, with fake tensors too, asks by the name that PyTorch's function has beside it.
    tracing = save.python_key_table[ProxyTorchDispatchMode]
    put(
        f"{_PATH}.run_and_save_rng_state.python_key_table[ProxyTorchDispatchMode].__closure__[impl_backend_select]",
        select,
        cell(tracing, original.__name__),
    )
    patch(
        f"{_PATH}.run_with_rng_state.py_kernels[BackendSelect]",
        lambda own: _or_managed(own, _run_with, first=1),
        item(run.py_kernels, chosen),
    )


def _or_managed(original: Callable[..., Any], ours: Callable[..., Any], first: int) -> Callable[..., Any]:
    """Chooses by the operator's arguments, which begin behind `first` of the call's and the operator."""

    @functools.wraps(original)
    def choose(*args: Any, **kwargs: Any) -> Any:
        managed = rng_prims.get_device(args[first + 1 :], kwargs) == DEVICE
        return (ours if managed else original)(*args, **kwargs)

    return choose


def _run_and_save(op: Any, *args: Any, **kwargs: Any) -> Any:
    return managed_device.get_rng_state(), op(*args, **kwargs)


def _run_with(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    now = managed_device.get_rng_state()
    managed_device.set_rng_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        managed_device.set_rng_state(now)
