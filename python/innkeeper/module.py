"""ManagedModule: a module whose parameters, buffers and inputs are on the managed device."""

from __future__ import annotations

import copyreg
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from innkeeper import _C, placement
from innkeeper._names import DEVICE
from innkeeper.inputs import moved
from innkeeper.manager import manager
from torch import nn


def _moving_what_it_made(constructor: Callable[..., None]) -> Callable[..., None]:
    """The constructor; at the end of the outermost one, the module moves to the device."""

    @functools.wraps(constructor)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if any(given is self for given in (*args[:1], kwargs.get("module"))):
            return  # ManagedModule(module) has constructed nothing
        outermost = "_under_construction" not in self.__dict__
        self.__dict__["_under_construction"] = True
        try:
            constructor(self, *args, **kwargs)
        finally:
            if outermost:
                self.__dict__.pop("_under_construction", None)
        if outermost:
            _bring_home(self)

    return __init__


class ManagedModule(nn.Module):
    """A module on the managed device; tensors given to it are moved there, so inputs may be on the CPU.

    Three ways to make one::

        class Net(ManagedModule):  # a base class in place of nn.Module
            ...

        net = ManagedModule(nn.Linear(10, 1))  # wrap an initialised module
        net = ManagedModule.from_module(nn.Linear(10, 1))  # the same, by its longer name

    A wrapped module is the same object: its parameters, ``state_dict`` and type (``isinstance``) stay
    unchanged. Tensors made by the outermost constructor move when it ends. Later ones (an inserted layer,
    loaded weights, or all after ``.cpu()``) move at the next call. The parameters stay the same objects, so
    that an optimizer goes on. A module that ``torch.compile`` has compiled leaves its parameters where
    ``.cpu()`` put them, and computes with copies of them on the device.

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

    @_moving_what_it_made
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **options: Any) -> None:
        """Makes the constructor move the module. No metaclass does it: a class has only one (ABC's, say)."""
        super().__init_subclass__(**options)
        if "__init__" in cls.__dict__:
            cls.__init__ = _moving_what_it_made(cls.__dict__["__init__"])  # type: ignore[method-assign]

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
        _bring_home(module)
        if not isinstance(module, wrapper):
            module.__class__ = _managed_class(wrapper, type(module))  # type: ignore[arg-type]
        return module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module with all tensors among its arguments moved to the device.

        Those in lists, tuples, dicts and data classes too: in copies of these, which leave the caller's as
        they are.
        """
        is_compiling = torch.compiler.is_compiling()
        if not is_compiling:
            _bring_home(self)
        device = _device_of(self)
        memo: dict[int, Any] | None = None if is_compiling else {}
        given = {name: moved(value, device, memo) for name, value in kwargs.items()}
        return super().__call__(*moved(args, device, memo), **given)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As of every module; ``cuda`` is the managed device, ``cuda:1`` its second node that computes."""
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
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
            device = manager().find_device(manager().size_estimate(self), disperse=disperse)
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


def _bring_home(module: nn.Module) -> None:
    """Moves the module to the device, unless ``torch.func.functional_call`` has put tensors into it."""
    if not _is_all_managed(module) and all(isinstance(x, nn.Parameter) for x in module.parameters()):
        nn.Module.to(module, DEVICE)


def _device_of(module: nn.Module) -> str | torch.device:
    """Where a call's tensors belong: on the first parameter's device, of which each node may have one."""
    for tensor in module.parameters():
        return DEVICE if tensor.device.type in ("cpu", "meta") else tensor.device
    return DEVICE


def _is_all_managed(module: nn.Module) -> bool:
    """Whether no parameter or buffer is elsewhere. Takes half a microsecond a parameter: calls ask it."""
    for tensors in (module._parameters, module._buffers):
        for tensor in tensors.values():
            if tensor is not None and not _C.is_managed(tensor.device) and not tensor.is_meta:
                return False
    return all(child is None or _is_all_managed(child) for child in module._modules.values())


@functools.cache
def _managed_class(wrapper: type, module_class: type) -> type:
    """The class that is both ``module_class`` and ``wrapper``, a ManagedModule; pickled by its parts."""
    members: dict[str, Any] = {"__reduce_ex__": _reduce}
    # The class that a lazy module becomes at its first call.
    if (becomes := getattr(module_class, "cls_to_become", None)) is not None:
        members["cls_to_become"] = _managed_class(wrapper, becomes)
    name, bases = f"Managed{module_class.__name__}", (wrapper, module_class)
    return types.new_class(name, bases, exec_body=lambda space: space.update(members))


def _reduce(self: ManagedModule, protocol: int) -> tuple[Any, ...]:
    """The wrapped class's state for pickle, with the way to make the class that wraps it."""
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
