"""PyTorch's old names of types: ``torch.managed.FloatTensor``, ``torch.managed.FloatStorage`` and so on.

A tensor type makes tensors, recognises them with ``isinstance``, and is accepted by ``x.type(...)``.
"""

from __future__ import annotations

from typing import Any

from torch.storage import _LegacyStorage

import torch
from innkeeper import _C
from innkeeper._register import DEVICE
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


class _TensorType(type):
    dtype: torch.dtype

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and _C.is_managed(x.device) and x.dtype == cls.dtype

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        """Sizes give an uninitialised tensor; a sequence, an array or a tensor gives its values."""
        there = torch.device(DEVICE, index_of(device))
        if len(data) == 1 and not isinstance(data[0], int | torch.Size):
            return torch.as_tensor(data[0], dtype=cls.dtype, device=there)
        return torch.empty(*data or (0,), dtype=cls.dtype, device=there)


def _storage_type(name: str, dtype: torch.dtype) -> type:
    # PyTorch reads a storage class's device from its module's name.
    return type(name, (_LegacyStorage,), {"dtype": dtype, "_dtype": dtype, "__module__": f"torch.{DEVICE}"})


# Tensor.type(cls) reads the class's whole name, so that has to be the one that tensors of the type report.
globals().update(
    {n: _TensorType(f"torch.{DEVICE}.{n}", (), {"dtype": dtype}) for n, dtype in _TENSORS.items()}
)
globals().update({name: _storage_type(name, dtype) for name, dtype in _STORAGES.items()})
