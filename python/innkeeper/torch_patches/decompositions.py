"""PyTorch's decompositions (``torch.compile``) that ask whether a tensor is on the CPU.

They compute as that device's kernels would: sums in another order, or statistics in another dtype. If the
host's kernels compute, the managed device is of the CPU's kind. The functions compare ``device.type`` with a
constant in their code. This module replaces the constant by one that also equals managed's type.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import constants, patch

_ASK = {  # functions by module
    "_refs": ("native_group_norm", "native_layer_norm"),
    "_decomp.decompositions": ("native_batch_norm_helper",),
}


class _Cpu(str):
    """The type of devices that the host's kernels compute for."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or (other == DEVICE and _host_computes())

    def __ne__(self, other: object) -> bool:
        return not self == other


def _host_computes() -> bool:
    return all(node.host_kernels for node in _C.nodes() if node.computes)


def install() -> None:
    """Makes them treat managed tensors by the device's kind. Once. Skips functions that a version lacks."""
    for module, names in _ASK.items():
        place: Any = torch
        for part in module.split("."):
            place = getattr(place, part, None)
        for name in names:
            function: Any = getattr(place, name, None)
            if function is not None:
                patch(f"torch.{module}.{name}.__code__", _with_managed, constants(inspect.unwrap(function)))


def _with_managed(constant: Any) -> Any:
    if isinstance(constant, tuple):
        return tuple(map(_with_managed, constant))
    return _Cpu(constant) if constant == "cpu" else constant
