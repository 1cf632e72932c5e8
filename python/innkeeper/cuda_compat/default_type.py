"""``torch.set_default_tensor_type``: of a CUDA type, ``torch.Tensor(...)`` makes CUDA tensors, too."""

from __future__ import annotations

import functools
import threading
from numbers import Integral
from typing import Any

import torch
from innkeeper._names import DEVICE
from innkeeper.cuda_compat.put import put
from torch import Tensor

_set_type = torch.set_default_tensor_type
_make = torch._C.TensorBase.__new__
_start = threading.Thread.start


def install() -> None:
    """Replaces it. Called once per process."""
    functools.update_wrapper(_set_default_tensor_type, _set_type)
    put(torch, set_default_tensor_type=_set_default_tensor_type)


def _set_default_tensor_type(kind: Any, /) -> None:
    if isinstance(kind, str):
        module, _, short = kind.rpartition(".")
    else:
        module, short = getattr(kind, "__module__", ""), getattr(kind, "__name__", "")
    if module == "torch.cuda.sparse":
        raise TypeError("only dense types are supported as the default type")
    if module in ("torch.cuda", f"torch.{DEVICE}") and hasattr(torch.cuda, short):
        torch.set_default_dtype(getattr(torch.cuda, short).dtype)
        torch.set_default_device("cuda")
        put(Tensor, __new__=_new)
        put(threading.Thread, start=_start_with_type)
        return
    _set_type(kind)
    if "__new__" in Tensor.__dict__:  # else the default device is the program's own
        del Tensor.__new__  # PyTorch's own, inherited, is the faster
        put(threading.Thread, start=_start)
        torch.set_default_device(None)


def _start_with_type(thread: threading.Thread) -> None:
    """As ``Thread.start``. The type is the process's, PyTorch's default device is a thread's own."""
    run = thread.run

    def run_with_type() -> None:
        del thread.run  # otherwise the thread would hold a reference to itself
        if "__new__" in Tensor.__dict__:
            torch.set_default_device("cuda")
        try:
            run()
        finally:
            # PyTorch would drop it when the thread is gone: at the program's end that ends the process.
            torch.set_default_device(None)

    thread.run = run_with_type  # type: ignore[method-assign]
    _start(thread)


def _new(*given: Any, **options: Any) -> Tensor:
    """As PyTorch's constructor, on the current CUDA device; a tensor or a storage stays where it is.

    It names no argument, as a constructor in C does not: TorchDynamo compares its own form with this one.
    """
    cls, *data = given
    device = options.pop("device", None) or "cuda"
    if (passed := torch.device(device).type) != "cuda":
        raise RuntimeError(
            f"legacy constructor expects device type: cuda but device type: {passed} was passed"
        )
    if len(data) == 1 and isinstance(data[0], (Tensor, torch.UntypedStorage, torch.TypedStorage)):
        return _of_what_is_there(cls, data[0], options)
    sizes = data[0] if len(data) == 1 and isinstance(data[0], torch.Size) else data
    if not options and all(_is_size(size) for size in sizes):
        made = torch.empty(tuple(int(size) for size in sizes) or (0,), device=device)
    else:
        made = _make(Tensor, *data, **options).to(device)
    return made if cls is Tensor else made.as_subclass(cls)


def _of_what_is_there(cls: type[Tensor], x: Any, options: dict[str, Any]) -> Tensor:
    if isinstance(x, Tensor) or x.device.type == "cpu":
        return _make(cls, x, **options)
    untyped = x.untyped() if isinstance(x, torch.TypedStorage) else x
    dtype = torch.get_default_dtype()
    made = torch.empty(0, dtype=dtype, device=untyped.device)
    return made.set_(untyped, 0, (untyped.nbytes() // dtype.itemsize,))  # type: ignore[call-overload]


def _is_size(x: Any) -> bool:
    is_number = isinstance(x, Integral) and not isinstance(x, bool)
    return is_number or (isinstance(x, Tensor) and x.dim() == 0 and not x.dtype.is_floating_point)
