"""Where PyTorch's Python code goes by the names of the devices that it knows: it is told what ours is.

Nothing else of PyTorch is replaced. Each of these takes a list of names, or a name, that no device can join.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.dlpack import DLDeviceType

import torch
from innkeeper import _C


def tell() -> None:
    """Tells PyTorch. Once."""
    _print_on_the_host()
    _answer_dlpack()
    _accumulate_as_behind()


def _print_on_the_host() -> None:
    """Formats managed tensors from a copy on the CPU, as PyTorch does for devices where operators are dear.

    Formatting runs a dozen operators, which would move memory about; one of them needs data, which simulated
    machines may do without. What is printed in part alone is left to PyTorch: its copy might not fit.
    """
    original = torch._tensor_str._tensor_str

    def contents(self: torch.Tensor, indent: int) -> str:
        whole = _C.is_managed(self.device) and self.numel() <= torch._tensor_str.PRINT_OPTS.threshold
        return original(self.cpu() if whole else self, indent)

    torch._tensor_str._tensor_str = contents


def _answer_dlpack() -> None:
    """Says what managed tensors are in DLPack's words: an out-of-tree device's, which other libraries refuse.

    So ``torch.from_dlpack`` takes them, and shares their memory. PyTorch looks for the name that such a
    device has before it has one.
    """
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def device(self: torch.Tensor) -> tuple[Any, int]:
        return (DLDeviceType.kDLExtDev, 0) if _C.is_managed(self.device) else original(self)

    torch.Tensor.__dlpack_device__ = device  # type: ignore[method-assign]


def _accumulate_as_behind() -> None:
    """Has ``linear_cross_entropy`` choose how to accumulate as it would on the device that computes.

    PyTorch knows two devices on which it accumulates lower precisions in float32, and how to cut the work.
    """
    try:
        from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
    except ImportError:  # before PyTorch 2.13
        return
    original = LinearCrossEntropyOptions._adjust

    @functools.wraps(original)
    def adjust(
        self: Any,
        num_batches: int,
        in_features: int,
        num_classes: int,
        dtype: torch.dtype,
        device: Any = None,
    ) -> Any:
        if device is not None and _C.is_managed(device):
            device = _computing_device()
        return original(self, num_batches, in_features, num_classes, dtype, device)

    LinearCrossEntropyOptions._adjust = adjust  # type: ignore[method-assign]


def _computing_device() -> torch.device:
    """The device that runs the kernels: a card, or the CPU, which computes for simulated ones too."""
    from innkeeper.managed_device.device import computing_nodes

    kinds = {node.kind for node in computing_nodes()}
    return torch.device("cuda" if kinds == {"cuda"} else "cpu")
