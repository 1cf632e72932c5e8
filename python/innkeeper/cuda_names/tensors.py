"""Devices' names where tensors are made and moved: factories, methods of tensors, storages.

PyTorch reads a name in C++, where no other can be given to the managed device. So each of the functions that
take a device is wrapped: names and numbers of CUDA devices become ``managed``, and an index a home.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils import _device as default_device

import torch
from innkeeper import _C
from innkeeper._register import DEVICE
from innkeeper.cuda_names import homes
from innkeeper.cuda_names.put import put
from innkeeper.cuda_names.script import is_own, note
from innkeeper.pickling import send_tensor
from torch import Tensor

# What torch.utils._device._device_constructors() does not list.
_LIKE = ["empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like"]
_FACTORIES = [*_LIKE, "normal", "from_file"]
_NEW = ["new", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"]

_wrapped: dict[Any, Callable[..., Any]] = {}  # from PyTorch's function to ours
_tensor_to, _tensor_type, _tensor_type_as = Tensor.to, Tensor.type, Tensor.type_as
_tensor_data_ptr = Tensor.data_ptr
_to_of_storage = torch.storage._StorageBase.to
_empty_like = torch.empty_like
_validate_device = torch.serialization._validate_device


def install() -> None:
    """Wraps them. Once."""
    factories = default_device._device_constructors()  # remembers PyTorch's own
    for module in (torch, torch.fft, torch.nested):
        for name in vars(module):
            original = getattr(module, name)
            if (name in _FACTORIES and module is torch) or _is_one_of(original, factories):
                _replace(module, name, _factory(original, like=name in _LIKE))
    for name in _NEW:
        _replace(Tensor, name, _factory(getattr(Tensor, name), like=True))
    methods: dict[str, Callable[..., Any]] = {
        "to": _to,
        "cuda": _cuda,
        "type": _type,
        "type_as": _type_as,
        "data_ptr": _data_ptr,
    }
    for name, method in methods.items():
        _replace(Tensor, name, method)
    for name in ("pin_memory", "is_pinned"):
        _replace(Tensor, name, _pinning(getattr(Tensor, name)))
    put(
        Tensor,
        is_cuda=property(lambda self: self.device.type == "cuda"),
        is_managed=property(lambda self: _C.is_managed(self.device)),
        managed=lambda self, device=None, **options: self.to(DEVICE, **options),
    )
    _replace(torch.storage._StorageBase, "to", _storage_to)
    put(default_device.DeviceContext, __torch_function__=_in_default_device)
    put(torch, set_default_tensor_type=_default_tensor_type)
    copyreg.pickle(torch.device, _by_shown_name)
    for sent in (Tensor, torch.nn.Parameter):
        ForkingPickler.register(sent, send_tensor)
    put(torch.serialization, _validate_device=_device_in_a_file)


def _is_one_of(x: Any, functions: set[Any]) -> bool:
    return callable(x) and getattr(x, "__hash__", None) is not None and x in functions


def _replace(owner: Any, name: str, by: Callable[..., Any]) -> None:
    original = getattr(owner, name)
    functools.update_wrapper(by, original)
    put(owner, **{name: by})
    if owner is torch:
        _wrapped[original] = by
        builtin = torch.jit._builtins._find_builtin(original)
        if builtin is not None:  # torch.jit knows PyTorch's functions by identity
            torch.jit._builtins._register_builtin(by, builtin)


def _factory(original: Callable[..., Any], like: bool = False) -> Callable[..., Any]:
    """``like``: what names no device is made where its first argument is."""

    def make(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is None:
            index = homes.of(args[0]) if like and args and homes.several() else None
        else:
            index = homes.asked(device)
        if index is None:
            return original(*args, **kwargs)
        if device is not None:
            kwargs["device"] = DEVICE
        if index < 0:
            return original(*args, **kwargs)
        with homes.home(index):
            made = original(*args, **kwargs)
        homes.send(made, index)
        return made

    return make


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    device = args[0] if args else kwargs.get("device")
    index = None if device is None else homes.asked(device)
    if index is None:
        return _tensor_to(self, *args, **kwargs)
    options = dict(zip(("dtype", "non_blocking", "copy"), args[1:], strict=False)) | kwargs
    return move(self, index, **(options | {"device": DEVICE}))


def move(x: Tensor, index: int, **options: Any) -> Tensor:
    """``x.to(device="cuda:index", ...)``."""
    if index < 0 and not homes.several():
        return _tensor_to(x, **options)
    index = homes.current() if index < 0 else index
    with homes.home(index):
        if x.device.type != "cuda" or homes.was_sent_to(x, index) or x.layout != torch.strided:
            moved = _tensor_to(x, **options)
        else:
            moved = _copied_here(x, **options)
    if moved is not x:
        homes.send(moved, index)
    return moved


def _copied_here(
    x: Tensor,
    dtype: torch.dtype | None = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **_: Any,
) -> Tensor:
    """A copy whose bytes are at the thread's home: an operator runs where it finds its operands."""
    there = _empty_like(x, dtype=dtype, memory_format=memory_format, requires_grad=False)
    return there.zero_().copy_(x)


def _cuda(
    self: Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> Tensor:
    index = homes.CURRENT if device is None else homes.asked(device)
    if index is None:
        raise RuntimeError(f"Invalid device, must be cuda device: {device}")
    return move(self, index, device=DEVICE, non_blocking=non_blocking, memory_format=memory_format)


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    if isinstance(dtype, str):
        dtype = dtype.replace("torch.cuda.", f"torch.{DEVICE}.")
    said = _tensor_type(self, dtype, non_blocking, **kwargs)
    return said.replace(f"torch.{DEVICE}.", "torch.cuda.") if isinstance(said, str) else said


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    index = homes.of(other) if homes.several() else None
    if index is None:
        return _tensor_type_as(self, other)
    return move(self, index, device=DEVICE, dtype=other.dtype)


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
        return original(self)  # for whichever accelerator there is

    return pinned


def _storage_to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
    index = homes.asked(device)
    if index is None:
        return _to_of_storage(self, device=device, non_blocking=non_blocking)
    if self.device.type == "cuda":
        return self
    # PyTorch's own would enter the device that it is told, which shows itself as cuda:0.
    with homes.home(index):
        return torch.UntypedStorage(self.size(), device=torch.device(DEVICE, 0)).copy_(self, non_blocking)


def _in_default_device(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What torch.set_default_device and ``with torch.device(...)`` do for functions without a device."""
    kwargs = kwargs or {}
    if func in default_device._device_constructors() and kwargs.get("device") is None:
        return _wrapped.get(func, func)(*args, **(kwargs | {"device": self.device}))
    return func(*args, **kwargs)


def _default_tensor_type(kind: Any) -> None:
    """``torch.set_default_tensor_type``, of a CUDA type too."""
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    if "cuda" not in name and DEVICE not in name:
        torch.set_default_device(None)
        return torch._C._set_default_tensor_type(kind)
    dtype = getattr(torch, name.rpartition(".")[2]).dtype
    torch.set_default_dtype(dtype)
    torch.set_default_device("cuda")


def _device_in_a_file(location: Any, backend: str) -> torch.device:
    """The device that ``torch.load`` is told, or finds: a process of torchrun's says the number it has."""
    rank = _C.local_rank()  # below 0 where torchrun has not started this process
    if backend == "cuda" and rank >= 0 and homes.asked(location) == rank and homes.nodes():
        return torch.device(backend, rank)
    return _validate_device(location, backend)


def _by_shown_name(device: torch.device) -> tuple[Any, ...]:
    """Pickles a device under the name that it has on other machines."""
    return torch.device, (device.type,) if device.index is None else (device.type, device.index)
