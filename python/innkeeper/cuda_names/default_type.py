"""``torch.set_default_tensor_type``: of a CUDA type, ``torch.Tensor(...)`` makes CUDA tensors, too."""

from __future__ import annotations

import functools
from numbers import Integral
from typing import Any

import torch
from innkeeper._register import DEVICE
from innkeeper.cuda_names.put import put
from torch import Tensor

_set_type = torch.set_default_tensor_type
_make = torch._C.TensorBase.__new__


def install() -> None:
    """Replaces it. Called once per process."""
    functools.update_wrapper(_set_default_tensor_type, _set_type)
    put(torch, set_default_tensor_type=_set_default_tensor_type)


def _set_default_tensor_type(kind: Any, /) -> None:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    if "cuda" in name or DEVICE in name:
        torch.set_default_dtype(getattr(torch.cuda, name.rpartition(".")[2]).dtype)
        torch.set_default_device("cuda")
        put(Tensor, __new__=_new)
        return
    _set_type(kind)
    torch.set_default_device(None)
    if "__new__" in Tensor.__dict__:
        del Tensor.__new__  # PyTorch's own, inherited, is the faster


def _new(*given: Any, **options: Any) -> Tensor:
    """As PyTorch's constructor, on the current CUDA device; a tensor or a storage stays where it is.

    It names no argument, as a constructor in C does not: TorchDynamo compares its own form with this one.
    """
    cls, *data = given
    if options or isinstance(data[0] if data else None, (Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return _make(cls, *data, **options)
    sizes = data[0] if len(data) == 1 and isinstance(data[0], torch.Size) else data
    if all(isinstance(size, Integral) and not isinstance(size, bool) for size in sizes):
        made = torch.empty(tuple(sizes) or (0,), device="cuda")
    else:
        made = _make(Tensor, *data).to("cuda")
    return made if cls is Tensor else made.as_subclass(cls)
