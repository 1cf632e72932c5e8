"""ManagedModule: a module whose parameters, buffers and inputs are on the managed device."""

from __future__ import annotations

import copyreg
from typing import Any

from torch.utils._pytree import tree_map_only

from innkeeper import placement
from innkeeper._register import DEVICE
from torch import Tensor, nn


class _MovedWhenBuilt(type):
    """Moves what a constructor made to the device when the outermost constructor has ended."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is ManagedModule:
            return ManagedModule.from_module(*args, **kwargs)
        return super().__call__(*args, **kwargs).to(DEVICE)


class ManagedModule(nn.Module, metaclass=_MovedWhenBuilt):
    """A module on the managed device; tensors given to it are moved there, so inputs may be on the CPU.

    Three ways to make one::

        class Net(ManagedModule):  # a base class in place of nn.Module
            ...

        net = ManagedModule(nn.Linear(10, 1))  # wrap an initialised module
        net = ManagedModule.from_module(nn.Linear(10, 1))  # the same, by its longer name

    A wrapped module is the same object: its parameters, ``state_dict`` and type (``isinstance``) stay what
    they were.
    """

    @staticmethod
    def from_module(module: nn.Module) -> Any:
        """Makes ``module`` a ManagedModule, in place, and returns it.

        Raises:
            TypeError: ``module`` is not a module.

        """
        if not isinstance(module, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(module).__name__}")
        if not isinstance(module, ManagedModule):
            module.__class__ = _managed_class(type(module))
        return module.to(DEVICE)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module with all tensors among its arguments moved to the device."""
        args, kwargs = tree_map_only(Tensor, lambda x: x.to(DEVICE), (args, kwargs))
        return super().__call__(*args, **kwargs)

    def pin(self, node: str | None = None) -> None:
        """Keeps parameters and buffers on ``node`` (default: where they are). Training does not need it."""
        placement.pin(self, node)

    def unpin(self) -> None:
        """Takes back one ``pin``."""
        placement.unpin(self)


_managed_classes: dict[type, type] = {}


def _managed_class(module_class: type) -> type:
    """The class that is both ``module_class`` and ManagedModule; made once, pickled by its parts."""
    if module_class not in _managed_classes:
        name = f"Managed{module_class.__name__}"
        _managed_classes[module_class] = _MovedWhenBuilt(
            name, (ManagedModule, module_class), {"__reduce_ex__": _reduce}
        )
    return _managed_classes[module_class]


def _reduce(self: ManagedModule, protocol: int) -> tuple[Any, ...]:
    return _restore, (type(self).__bases__[1],), self.__dict__


def _restore(module_class: type) -> nn.Module:
    return copyreg.__newobj__(_managed_class(module_class))  # type: ignore[attr-defined]
