"""``torch.distributed`` in CUDA's words: ``init_process_group("nccl")`` means the managed device's backend.

A script's later queries for ``"nccl"`` find it available.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from innkeeper import _C
from innkeeper.cuda_compat.put import put
from innkeeper.distributed import BACKEND

_LIKE_NCCL = (2, 21, 5)
"""A version that has what scripts ask it for: bfloat16, asynchronous errors."""


def install() -> None:
    """Makes it so, where PyTorch was built with torch.distributed. Once."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    for name in (
        "init_process_group",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
        "barrier",
    ):
        _replace(name, _translating(getattr(distributed, name)))
    _replace("get_backend", _told_nccl(distributed.get_backend))
    _replace("is_nccl_available", lambda: True)
    put(torch.cuda.nccl, version=lambda: _LIKE_NCCL)


def _replace(name: str, by: Callable[..., Any]) -> None:
    for owner in (torch.distributed, torch.distributed.distributed_c10d):
        put(owner, **{name: by})


def _translating(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        said = signature.bind(*args, **kwargs)
        backend = said.arguments.get("backend")
        if backend is not None or original.__name__ == "init_process_group":  # others' default is its
            said.arguments["backend"] = translated(backend)
        device = said.arguments.get("device_id")
        if isinstance(device, int) or (isinstance(device, torch.device) and _C.is_managed(device)):
            said.arguments["device_id"] = None  # a process has only one device
        if "device_ids" in said.arguments:  # barrier's, for NCCL
            said.arguments["device_ids"] = None
        return original(*said.args, **said.kwargs)

    return make


def translated(backend: str | None) -> str | None:
    """A backend's name, or ``"cpu:gloo,cuda:nccl"``: ours, which takes CPU tensors too, in place of CUDA's.

    Groups of Gloo's take managed tensors already.
    """
    said = (backend or "").lower().split(",")
    return (
        BACKEND
        if any(part.strip() in ("", "nccl") or part.strip().startswith("cuda:") for part in said)
        else backend
    )


def _told_nccl(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_backend(*args: Any, **kwargs: Any) -> Any:
        said = original(*args, **kwargs)
        return torch.distributed.Backend.NCCL if said == BACKEND else said

    return get_backend
