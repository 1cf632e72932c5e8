"""The names of the package tensor-managed 0.1, so that programs written for it run on the managed device.

``install()`` puts this module under the name ``managed`` if no such package is installed, and
``run --managed`` calls it. Differences from the package:

- Tensors move when an operator uses them, and the engine evicts blocks that do not fit, so no program needs
  ``pin`` to train.
- ``x.as_subclass(ManagedTensor)`` stays on the CPU among tensors of the CPU, and moves when an operator uses
  it together with a tensor on the device. A pinned tensor is pinned to a node that computes, never to the
  CPU.
- A ``DeviceManager`` is a view of the process's one manager: any two have the same settings.
- ``find_device`` chooses by the bytes that nodes hold now, without chance.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from torch.utils._pytree import tree_leaves

import torch
from innkeeper import _C, mixed, module, placement, tensor
from innkeeper._names import DEVICE
from innkeeper.compat.settings import PredecessorSettings  # noqa: F401  (of the manager)
from innkeeper.manager import manager, sizes_of, tensors_of
from innkeeper.torch_patches.patch import apply
from torch import Tensor, nn

__all__ = ["HEUSRISTIC_FUNCTION", "USE_HEURISTIC", "ManagedModule", "ManagedTensor", "device_manager"]


def heuristic_size(size: int) -> int:
    """The bytes that are counted for a tensor of ``size`` bytes: some more, for tensors computed from it."""
    return size + int(1.5 * size**0.5)


USE_HEURISTIC = True
"""Whether sizes are estimated by the function below; a program may set both, at any time."""
HEUSRISTIC_FUNCTION: Callable[[int], int | float] = heuristic_size
HEURISTIC_FUNCTION: Callable[[int], int | float] | None = None
"""The same by the name that the package's documentation has for it; the function above if it is None."""


class DeviceManager:
    """Where tensors go, by the package's calls. Settings that it does not name are ``innkeeper.manager()``'s.

    Args:
        comm_interface: has ``sleep(seconds)``, with which ``find_device`` waits.
        cuda_devices: the devices that may be chosen; None: all.
        reserved: see there; None leaves it as it is.
        retry_limit: how often ``find_device`` looks again.
        wait_time: seconds between two looks.

    """

    def __init__(
        self,
        comm_interface: Any = time,
        cuda_devices: Sequence[torch.device] | None = None,
        reserved: float | None = None,
        retry_limit: int | None = None,
        wait_time: float | None = None,
    ) -> None:
        self.comm_interface = comm_interface
        self._cuda_devices: tuple[torch.device, ...] | None = None
        given = {
            "cuda_devices": cuda_devices,
            "reserved": reserved,
            "retry_limit": retry_limit,
            "wait_time": wait_time,
        }
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """Attributes that the package did not have: those of the process's manager."""
        return getattr(manager(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets the process's manager's where it has it."""
        own = name.startswith("_") or name == "comm_interface" or hasattr(type(self), name)
        object.__setattr__(self if own else manager(), name, value)

    # Devices.

    @property
    def cuda_devices(self) -> tuple[torch.device, ...]:
        """The devices that may be chosen: one for each node that computes, where each has a device."""
        if self._cuda_devices is not None:
            return self._cuda_devices
        return tuple(torch.device(DEVICE, index) for index in range(_C.device_count()))

    @cuda_devices.setter
    def cuda_devices(self, devices: Sequence[torch.device]) -> None:
        self._cuda_devices = tuple(torch.device(device) for device in devices)

    @property
    def cpu_device(self) -> torch.device:
        """``torch.device("cpu")``."""
        return torch.device("cpu")

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The CPU, then ``cuda_devices``."""
        return (self.cpu_device, *self.cuda_devices)

    @property
    def reserved(self) -> float:
        """The fraction of every accelerator that is kept free, from 0 to less than 1."""
        return manager().reserve

    @reserved.setter
    def reserved(self, fraction: float) -> None:
        manager().reserve = fraction

    # Placement.

    def find_device(self, space_estimate: int, *_: Any, disperse: bool = False, **__: Any) -> torch.device:
        """The device that can hold ``space_estimate`` bytes more; the CPU if none can for a while.

        Args:
            space_estimate: bytes.
            disperse: True spreads: the device with most free memory. False packs: the one with least that
                has enough.

        """
        for attempt in range(self.retry_limit + 1):
            if attempt:
                self.comm_interface.sleep(self.wait_time)
            free = self._free()
            fitting = {device: nbytes for device, nbytes in free.items() if nbytes[0] >= space_estimate}
            if fitting:
                return (max if disperse else min)(fitting, key=lambda device: fitting[device][0])
            tight = {device: nbytes for device, nbytes in free.items() if nbytes[1] >= space_estimate}
            if tight:
                return max(tight, key=lambda device: tight[device][1])
            self.log(f"no device has room for {space_estimate} bytes: free and unpinned are {free}")
        return self.cpu_device

    def _free(self) -> dict[torch.device, tuple[int, int]]:
        """Of each device that may be chosen the bytes that are free, and that are not pinned."""
        state = _C.stats()["nodes"]
        names = placement.computing_nodes()
        each = [
            (state[name]["budget"] - state[name]["resident"], state[name]["budget"] - state[name]["pinned"])
            for name in names
        ]
        if not _C.has_device_per_node():  # one device is all nodes
            free, rest = (sum(column) for column in zip(*each, strict=True))
            return dict.fromkeys(self.cuda_devices, (free, rest))
        return {device: each[device.index] for device in self.cuda_devices if device.index < len(each)}

    def size_estimate(self, *objects: Tensor | nn.Module) -> int:
        """Bytes that the objects need by the heuristic: of each tensor, twice if it needs a gradient."""
        count = (HEURISTIC_FUNCTION or HEUSRISTIC_FUNCTION) if USE_HEURISTIC else int
        return int(sum(map(count, sizes_of(objects))))

    def cuda(self, obj: Tensor | nn.Module, *_: Any, disperse: bool = False, **__: Any) -> torch.device:
        """The device where ``obj`` is, if it is on one; else ``find_device`` of its size."""
        tensors = tensors_of(obj)
        if tensors and _C.is_managed(tensors[0].device):
            return tensors[0].device
        return self.find_device(self.size_estimate(obj), disperse=disperse)

    def cpu(self, *_: Any, **__: Any) -> torch.device:
        """The CPU, which has memory for all its tensors."""
        return self.cpu_device

    def send(
        self,
        tensor_list: Iterable[Tensor],
        device: torch.device | str | None = None,
        space_estimate: int = -1,
    ) -> list[Tensor]:
        """Moves the tensors in place to ``device``, by default ``find_device``'s, and returns them.

        Raises:
            ValueError: there is no such device.

        """
        tensors = list(tensor_list)
        if device is None:
            size = space_estimate if space_estimate >= 0 else self.size_estimate(*tensors)
            device = self.find_device(size)
        on_cpu = torch.device(device).type == "cpu"
        for each in tensors:
            each.data = each.data.cpu() if on_cpu else placement.brought(each.data, device)
        return tensors


device_manager = DeviceManager()
"""The process's manager, as the package shows it."""


class ManagedTensor(tensor.ManagedTensor):  # type: ignore[metaclass]
    """As ``innkeeper.ManagedTensor``, but operators whose operands are all on the CPU stay there."""

    recognises_all_managed = True

    def cuda(self, device: Any = None, *, disperse: bool = False, **options: Any) -> Tensor:  # type: ignore[override]
        """Returns it on ``device``, by default the one that ``device_manager.cuda`` finds for it."""
        if device is None and not _C.is_managed(self.device):
            device = device_manager.cuda(self, disperse=disperse)
        if device is not None and torch.device(device).type == "cpu":
            device = None  # no device has free space now: the engine makes some
        return super().cuda(device, **options)

    @classmethod
    def _prepared(cls, arguments: Any) -> Any:
        on_device = any(isinstance(x, Tensor) and _C.is_managed(x.device) for x in tree_leaves(arguments))
        return super()._prepared(arguments) if on_device else arguments

    @classmethod
    def _marked(cls, x: Any) -> Any:
        return x.as_subclass(cls) if type(x) is Tensor else x


_ManagedTensor = ManagedTensor


class ManagedModule(module.ManagedModule):
    """As ``innkeeper.ManagedModule``, with the package's names."""

    wraps_modules = True

    @classmethod
    def from_module(cls, module: nn.Module, tensor_cls: type[Tensor] = ManagedTensor) -> Any:
        """See there. ``tensor_cls`` says nothing more: parameters stay PyTorch's, and are instances of it."""
        return super().from_module(module)

    def apply_(self, fn: Callable[[Tensor], object]) -> Any:
        """Calls ``fn`` with each parameter and buffer, and returns the module."""
        for each in tensors_of(self):
            fn(each)
        return self


# The name ``managed``.

_NAME = "managed"
_PARTS = ("_tensor", "_utils", "device_manager", "module", "tensor")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last to be asked: finds this module under the package's name."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == _NAME else None

    def exec_module(self, module: ModuleType) -> None:
        this = sys.modules[__name__]
        for part in _PARTS:
            sys.modules.setdefault(f"{_NAME}.{part}", this)
        sys.modules[_NAME] = this
        if "INNKEEPER_MIXED" not in os.environ:
            mixed.set_moves(True)  # the package's promise, also under ``run --managed``


def install() -> None:
    """Has ``import managed`` find this module, unless a package of that name is installed.

    Such a program's tensors of the CPU move where they meet the device's, unless ``INNKEEPER_MIXED`` says
    otherwise.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        apply(
            "sys.meta_path[innkeeper.compat.tensor_managed._Finder]", lambda: sys.meta_path.append(_Finder())
        )
