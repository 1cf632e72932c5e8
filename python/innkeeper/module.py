"""ManagedModule: a module whose parameters, buffers and inputs are on the managed device."""

from __future__ import annotations

import copyreg
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from innkeeper import _C, placement
from innkeeper._register import DEVICE
from innkeeper.inputs import moved
from innkeeper.manager import manager
from torch import nn


class ManagedModule(nn.Module):
    """A module on the managed device; tensors given to it are moved there, so inputs may be on the CPU.

    Three ways to make one::

        class Net(ManagedModule):  # a base class in place of nn.Module
            ...

        net = ManagedModule(nn.Linear(10, 1))  # wrap an initialised module
        net = ManagedModule.from_module(nn.Linear(10, 1))  # the same, by its longer name

    A wrapped module is the same object: its parameters, ``state_dict`` and type (``isinstance``) stay what
    they were. What the outermost constructor made is moved when it ends. What comes later, a layer that is
    put in, loaded weights, or all after ``.cpu()``, is moved at the next call, the parameters as the same
    objects, so that an optimizer goes on.

    ``.cuda()`` and ``.to("cuda")`` mean the managed device, with a GPU and without.
    """

    wraps_modules = True
    """In the class's own dictionary: called with a module, it wraps that. Derived classes have it not."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Wraps a module where this class itself is called with one; else makes an instance as usual."""
        if "wraps_modules" in cls.__dict__ and (args or kwargs):
            return cls.from_module(*args, **kwargs)
        make = super().__new__
        return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    def __init_subclass__(cls, **options: Any) -> None:
        """Has the constructor move what it made. Not by a metaclass: a class has one alone, such as ABC's."""
        super().__init_subclass__(**options)
        cls.__init__ = _moving_what_it_made(cls, cls.__dict__.get("__init__"))  # type: ignore[method-assign]

    @classmethod
    def from_module(cls, module: nn.Module) -> Any:
        """Makes ``module`` a ManagedModule, in place, and returns it.

        Raises:
            TypeError: ``module`` is not a module, or one whose class cannot be changed (``torch.jit``'s).

        """
        if not isinstance(module, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(module).__name__}")
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(f"cannot wrap a {type(module).__name__}: move it with .to('{DEVICE}') instead")
        wrapper = next(each for each in cls.__mro__ if "wraps_modules" in each.__dict__)
        if not isinstance(module, wrapper):
            module.__class__ = _managed_class(wrapper, type(module))  # type: ignore[arg-type]
        return nn.Module.to(module, DEVICE)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module with all tensors among its arguments moved to the device.

        Those in lists, tuples, dicts and data classes too: in copies of these, which leave the caller's as
        they are.
        """
        if not torch.compiler.is_compiling() and not _is_all_managed(self):
            nn.Module.to(self, DEVICE)
        return super().__call__(*moved(args), **{name: moved(value) for name, value in kwargs.items()})

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As of every module; ``cuda`` is the managed device, ``cuda:1`` its second node that computes."""
        device, *others = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type != "cuda" or _C.is_managed(device):
            return super().to(*args, **kwargs)
        placement.brought(self, device)
        names = ("dtype", "non_blocking", "memory_format")
        changes: dict[str, Any] = dict(zip(names, others, strict=True))
        return super().to(**changes)

    def cuda(self, device: Any = None, *, disperse: bool | None = None) -> Any:
        """Returns it on the managed device.

        Args:
            device: ``1`` or ``"cuda:1"`` brings it to the second node that computes.
            disperse: chooses the node as ``DeviceManager.find_device`` does.

        Raises:
            ValueError: there is no such node.

        """
        if device is None and disperse is not None:
            device = manager().find_device(manager().size_estimate(self), disperse)
        return placement.brought(self, device)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Any:
        """As of every module; ``cuda`` is the managed device."""
        is_cuda = device is not None and torch.device(device).type == "cuda"
        return super().to_empty(device=DEVICE if is_cuda else device, recurse=recurse)

    def pin(self, node: str | None = None) -> None:
        """Keeps parameters and buffers on ``node`` (default: where they are). Training does not need it."""
        placement.pin(self, node)

    def unpin(self) -> None:
        """Takes back one ``pin``."""
        placement.unpin(self)


def _is_all_managed(module: nn.Module) -> bool:
    """Whether no parameter or buffer is elsewhere. Takes half a microsecond a parameter: calls ask it."""
    for tensors in (module._parameters, module._buffers):
        for tensor in tensors.values():
            if tensor is not None and not _C.is_managed(tensor.device):
                return False
    return all(child is None or _is_all_managed(child) for child in module._modules.values())


def _moving_what_it_made(cls: Any, own: Callable[..., None] | None) -> Callable[..., None]:
    """The constructor of ``cls``, which has ``own`` or none. The outermost one moves what was made."""

    @functools.wraps(cls.__init__)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(given is self for given in (*args[:1], kwargs.get("module"))):
            return  # ManagedModule(module) has constructed nothing
        outermost = self.__dict__.setdefault("_under_construction", cls) is cls
        try:
            if own is None:
                super(cls, self).__init__(*args, **kwargs)
            else:
                own(self, *args, **kwargs)
        finally:
            if outermost:
                self.__dict__.pop("_under_construction", None)
        if outermost:
            nn.Module.to(self, DEVICE)

    return __init__


@functools.cache
def _managed_class(wrapper: type, module_class: type) -> type:
    """The class that is both ``module_class`` and ``wrapper``, a ManagedModule; pickled by its parts."""
    members: dict[str, Any] = {"__reduce_ex__": _reduce}
    if (becomes := getattr(module_class, "cls_to_become", None)) is not None:  # of a lazy module
        members["cls_to_become"] = _managed_class(wrapper, becomes)
    name, bases = f"Managed{module_class.__name__}", (wrapper, module_class)
    return types.new_class(name, bases, exec_body=lambda space: space.update(members))


def _reduce(self: ManagedModule, protocol: int) -> tuple[Any, ...]:
    """What pickle keeps: as the wrapped class has it, with how to make the class that wraps it."""
    wrapper, module_class = type(self).__bases__
    reduced: Any = module_class.__reduce_ex__(self, max(protocol, 2))  # type: ignore[arg-type,call-arg]
    made, arguments, *state = reduced
    if made is copyreg.__newobj__:  # type: ignore[attr-defined]
        return (_restore, (wrapper, module_class, *arguments[1:]), *state)
    return (_wrap_again, (wrapper, made, arguments), *state)


def _restore(wrapper: type, module_class: type, *arguments: Any) -> Any:
    return copyreg.__newobj__(_managed_class(wrapper, module_class), *arguments)  # type: ignore[attr-defined]


def _wrap_again(wrapper: type[ManagedModule], made: Callable[..., nn.Module], arguments: Any) -> Any:
    return wrapper.from_module(made(*arguments))
