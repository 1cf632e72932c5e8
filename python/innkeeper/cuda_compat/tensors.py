"""Methods of tensors that name CUDA in Python or in C++ where no other device can take the name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.cuda_compat.put import put
from innkeeper.managed_device.device import index_of
from innkeeper.pickling import send_tensor
from innkeeper.script import is_own, note
from innkeeper.torch_patches.patch import apply
from torch import Tensor

_tensor_to, _tensor_type, _tensor_data_ptr = Tensor.to, Tensor.type, Tensor.data_ptr
_validate_device = torch.serialization._validate_device


def install() -> None:
    """Replaces them. Called once per process."""
    methods: dict[str, Any] = {"cuda": _cuda, "type": _type, "data_ptr": _data_ptr}
    for name, method in methods.items():
        functools.update_wrapper(method, getattr(Tensor, name))
        put(Tensor, **{name: method})
    for name in ("pin_memory", "is_pinned"):
        put(Tensor, **{name: _pinning(getattr(Tensor, name))})
    put(
        Tensor,
        is_cuda=property(lambda self: self.device.type == "cuda"),
        is_managed=property(lambda self: _C.is_managed(self.device)),
    )
    put(torch.serialization, _validate_device=_device_in_a_file)
    for sent in (Tensor, torch.nn.Parameter):
        apply(
            f"multiprocessing.reduction.ForkingPickler._extra_reducers[{sent.__name__}]",
            functools.partial(ForkingPickler.register, sent, send_tensor),
        )


def _cuda(
    self: Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Tensor:
    there = torch.device(DEVICE, index_of(device))
    return _tensor_to(self, device=there, non_blocking=non_blocking, memory_format=memory_format)


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if isinstance(dtype, str):
        dtype = dtype.replace("torch.cuda.", f"torch.{DEVICE}.")
    said = _tensor_type(self, dtype, non_blocking, **kwargs)
    return said.replace(f"torch.{DEVICE}.", "torch.cuda.") if isinstance(said, str) else said


def _data_ptr(self: Tensor) -> int:
    if self.device.type == "cuda" and is_own(sys._getframe(1)):
        note(
            "data_ptr",
            "data_ptr() of a managed tensor tells tensors apart and points to no memory: "
            "a kernel of your own takes the real tensor from innkeeper.resident(x)",
        )
    return _tensor_data_ptr(self)


def _pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    def pinned(self: Tensor, device: Any = None) -> Any:
        return original(self)  # pinned for the present accelerator

    return pinned


def _device_in_a_file(location: Any, backend: str) -> torch.device:
    """``torch.load``'s check that there is such a device. LOCAL_RANK may be beyond those that there are."""
    device = torch.device(location)
    if _C.is_managed(device) and device.index is not None and device.index == _C.local_rank():
        return device
    return _validate_device(location, backend)
