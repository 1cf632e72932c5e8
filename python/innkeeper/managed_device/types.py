"""PyTorch's old names of types: ``torch.managed.FloatTensor``, ``torch.managed.FloatStorage`` and so on.

A tensor type makes tensors, recognises them with ``isinstance``, and is accepted by ``x.type(...)``.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from torch.storage import _LegacyStorage

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.managed_device.device import index_of
from torch import Tensor

_TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}
_STORAGES = {name.replace("Tensor", "Storage"): dtype for name, dtype in _TENSORS.items()} | {
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
}

__all__ = [*_TENSORS, *_STORAGES]


class TensorType(type):
    """The type of such types, with the attributes that PyTorch's own have."""

    dtype: torch.dtype
    layout = torch.strided
    is_sparse = False
    is_sparse_csr = False
    is_xpu = False

    @property
    def is_cuda(cls) -> bool:
        """Whether the managed device is called cuda in this process."""
        return torch.device(DEVICE).type == "cuda"

    # Tensor.type(cls) reads the name that the class was made with, so that has to be the whole one.
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        return cls.__qualname__

    def __getattr__(cls, name: str) -> Any:
        """Methods of tensors, such as ``torch.managed.FloatTensor.add``."""
        if not name.startswith("__") and hasattr(torch._C.TensorBase, name):
            return getattr(torch._C.TensorBase, name)
        raise AttributeError(f"type object '{cls.__module__}.{cls.__name__}' has no attribute '{name}'")

    def __instancecheck__(cls, x: object) -> bool:
        if not isinstance(x, Tensor) or x.is_nested:
            return False
        return _C.is_managed(x.device) and x.dtype == cls.dtype and x.layout == cls.layout

    def __call__(cls, *data: Any, device: Any = None, **options: Any) -> Tensor:
        """Sizes give an uninitialised tensor; a sequence, an array or a tensor gives its values."""
        there = torch.device(DEVICE, index_of(device))
        if len(data) == 1 and isinstance(data[0], Tensor | torch.TypedStorage | torch.UntypedStorage):
            return torch.as_tensor(data[0], dtype=cls.dtype, device=there)
        sizes = data[0] if len(data) == 1 and isinstance(data[0], torch.Size) else data
        if not options and all(isinstance(size, Integral) and not isinstance(size, bool) for size in sizes):
            return torch.empty(tuple(sizes) or (0,), dtype=cls.dtype, device=there)
        return cls._made_on_cpu(torch, *data, **options).to(there)

    def _made_on_cpu(cls, module: Any, *data: Any, **options: Any) -> Tensor:
        """The result of PyTorch's CPU type, which also refuses wrong arguments with its own message."""
        made: Tensor = getattr(module, cls.__name__)(*data, **options)
        return made


class SparseTensorType(TensorType):
    """The type of ``torch.cuda.sparse``'s types, of tensors in coordinate format."""

    layout = torch.sparse_coo
    is_sparse = True

    def __call__(cls, *data: Any, device: Any = None, **options: Any) -> Tensor:
        """Sizes give a tensor without elements; indices and values give a tensor where these are."""
        there = torch.device(DEVICE, index_of(device))
        made = cls._made_on_cpu(torch.sparse, *data, **options)
        given = (*data, *options.values())
        # As with CUDA, the type does not move indices and values.
        return made if any(isinstance(x, Tensor) for x in given) else made.to(there)


def _tensor_type(kind: type[TensorType], module: str, name: str) -> TensorType:
    members = {"__module__": module, "__qualname__": name, "dtype": _TENSORS[name]}
    return kind(f"{module}.{name}", (), members)


def _storage_type(name: str, dtype: torch.dtype) -> type:
    # PyTorch reads a storage class's device from its module's name.
    return type(name, (_LegacyStorage,), {"dtype": dtype, "_dtype": dtype, "__module__": f"torch.{DEVICE}"})


SPARSE = {
    name: _tensor_type(SparseTensorType, f"torch.{DEVICE}.sparse", name)
    for name in _TENSORS
    if hasattr(torch.sparse, name)
}
"""What ``torch.cuda.sparse`` has; ``torch.managed`` has no names of its own for these."""

globals().update({name: _tensor_type(TensorType, f"torch.{DEVICE}", name) for name in _TENSORS})
globals().update({name: _storage_type(name, dtype) for name, dtype in _STORAGES.items()})
