"""Makes the managed device known to PyTorch, once per process."""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch.utils.dlpack import DLDeviceType

import torch

DEVICE = "managed"
_UNCLAIMED = "privateuseone"  # what PyTorch calls the slot for an out-of-tree device while nobody has it


def register() -> None:
    """Loads the backend and registers ``torch.managed``. Doing it again does nothing.

    Raises:
        ImportError: another out-of-tree device has taken PyTorch's one slot for such devices.

    """
    taken_by = torch._C._get_privateuse1_backend_name()
    if taken_by not in (_UNCLAIMED, DEVICE):
        raise ImportError(
            f"innkeeper cannot be loaded beside the device {taken_by!r}: "
            "PyTorch has one slot for out-of-tree devices"
        )
    if f"torch.{DEVICE}" in sys.modules:
        return
    # torch must be loaded before the extension that links to it; importing it registers the backend.
    from innkeeper import _C, managed_device  # noqa: F401

    _print_on_the_host()
    _answer_dlpack()
    torch.utils.rename_privateuse1_backend(DEVICE)  # the Python side of the name; C++ has it already
    torch._register_device_module(DEVICE, managed_device)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )


def _answer_dlpack() -> None:
    """Says what managed tensors are in DLPack's words: an out-of-tree device's, which other libraries refuse.

    So ``torch.from_dlpack`` takes them, and shares their memory. PyTorch looks for the name that such a
    device has before it has one.
    """
    original = torch.Tensor.__dlpack_device__

    @functools.wraps(original)
    def device(self: torch.Tensor) -> tuple[Any, int]:
        return (DLDeviceType.kDLExtDev, 0) if self.device.type == DEVICE else original(self)

    torch.Tensor.__dlpack_device__ = device  # type: ignore[method-assign]


def _print_on_the_host() -> None:
    """Formats managed tensors from a copy on the CPU, as PyTorch does for devices where operators are dear.

    Formatting runs a dozen operators, which would move memory about; one of them needs data, which simulated
    machines may do without. PyTorch has a list of such devices and no way to join it. What is printed in part
    alone is left to PyTorch: its copy might not fit.
    """
    original = torch._tensor_str._tensor_str

    def contents(self: torch.Tensor, indent: int) -> str:
        whole = self.device.type == DEVICE and self.numel() <= torch._tensor_str.PRINT_OPTS.threshold
        return original(self.cpu() if whole else self, indent)

    torch._tensor_str._tensor_str = contents
