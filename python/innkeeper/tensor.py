"""ManagedTensor: the predecessor's name for a tensor on the managed device.

A managed tensor is a plain ``torch.Tensor``; nothing needs a subclass. The class makes such tensors,
recognises them with ``isinstance``, and lets ``x.as_subclass(ManagedTensor)`` work for programs that are
written so. ``install()`` gives every tensor the methods that such programs call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._pytree import tree_leaves, tree_map

import torch
from innkeeper import _C, placement
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import put
from torch import Tensor

_tensor_cuda = Tensor.cuda


class _ManagedMeta(type(Tensor)):  # type: ignore[misc]  # the metaclass has no static name
    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        recognises_all = "recognises_all_managed" in cls.__dict__
        return recognises_all and isinstance(instance, Tensor) and _C.is_managed(instance.device)

    def __call__(cls, *data: Any, **options: Any) -> Any:
        """As ``torch.Tensor(...)`` makes one: from data, a tensor, sizes, or nothing."""
        if any(getattr(cls, name) is not getattr(Tensor, name) for name in ("__init__", "__new__")):
            return super().__call__(*data, **options)  # the user's own constructor
        made = _made(data, options)
        return made if "recognises_all_managed" in cls.__dict__ else made.as_subclass(cls)


class ManagedTensor(Tensor, metaclass=_ManagedMeta):
    """Makes and recognises tensors on the managed device.

    ``ManagedTensor(...)`` takes the arguments of ``torch.Tensor(...)``, ``dtype=`` and ``requires_grad=``. It
    and the class methods give plain tensors. ``x.as_subclass(ManagedTensor)`` gives one that is moved to the
    device at its first use in an operator, and whose results are such tensors too; that costs a few
    microseconds an operator, which a plain managed tensor does not. A class derived from it does so too.

        x = ManagedTensor([[1.0, 2.0]], requires_grad=True)
        isinstance(x * 2, ManagedTensor)  # True: it is about the device
    """

    recognises_all_managed = True
    """In the class's own dictionary: each tensor on the device is an instance. Others have it not."""

    @staticmethod
    def create(data: Any, **options: Any) -> Tensor:
        """Copies ``data`` to a new tensor as ``torch.tensor`` does; takes ``dtype``, ``requires_grad``."""
        if isinstance(data, Tensor):
            requires_grad = options.pop("requires_grad", False)
            return data.detach().to(DEVICE, copy=True, **options).requires_grad_(requires_grad)
        return torch.tensor(data, device=DEVICE, **options)

    @staticmethod
    def wrap(x: Tensor, *, disperse: bool | None = None) -> Tensor:
        """``x`` on the managed device: ``x`` itself if it is there, else a copy through which gradients flow.

        Args:
            x: any shape, dtype and device.
            disperse: choose the node as ``DeviceManager.find_device`` does; by default the thread's home.

        """
        return placement.brought(x, _node_for(x, disperse))

    # Attributes of an instance made by as_subclass.

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in _NEED_NO_MOVE and not (_writes(name, kwargs) and _has_graph(args[0])):
            args, kwargs = cls._prepared((tuple(args), kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        if func in _PLAIN_RESULTS:
            return result
        if name in _KEEP_CLASS and type(result) is Tensor:
            return result.as_subclass(cls)
        return tree_map(cls._marked, result)

    def cuda(self, device: Any = None, *, disperse: bool | None = None, **_: Any) -> Tensor:  # type: ignore[override]
        """Returns it on the managed device, which the predecessor's users mean by ``cuda``.

        Args:
            device: ``1`` or ``"cuda:1"`` is the second node that computes.
            disperse: choose the node as ``DeviceManager.find_device`` does; by default the thread's preferred
                node.

        Raises:
            ValueError: there is no such node.

        """
        plain = self.as_subclass(Tensor)
        wanted = _node_for(plain, disperse) if device is None else device
        return placement.brought(plain, wanted).as_subclass(type(self))

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """As ``torch.Tensor.to``; ``cuda`` is the managed device, as in ``cuda``.

        Without a device the result is of this class. A tensor sent to the CPU becomes a plain tensor.
        """
        named = kwargs["device"] if "device" in kwargs else args[0] if args else None
        device = torch.device(named) if isinstance(named, (str, torch.device)) else None
        if named is None or isinstance(named, torch.dtype):
            return super().to(*args, **kwargs).as_subclass(type(self))
        if device is None or device.type != "cuda" or _C.is_managed(device):
            return super().to(*args, **kwargs)
        there = self.cuda(device)
        if "device" in kwargs:
            return there.to(*args, **{**kwargs, "device": there.device})
        return there.to(there.device, *args[1:], **kwargs)

    def __format__(self, specification: str) -> str:
        """As a plain tensor's: of one without dimensions its number's."""
        return self.as_subclass(Tensor).__format__(specification)

    @classmethod
    def _prepared(cls, arguments: Any) -> Any:
        """An operator's arguments, moved as it needs them: to one device."""
        arguments = tree_map(cls._moved, arguments)
        if not _C.has_device_per_node():
            return arguments
        sizes: dict[torch.device, int] = {}
        for x in tree_leaves(arguments):
            if isinstance(x, Tensor) and _C.is_managed(x.device):
                sizes[x.device] = sizes.get(x.device, 0) + x.nbytes
        if len(sizes) < 2:
            return arguments
        most = max(sizes, key=lambda device: sizes[device])
        return tree_map(lambda x: _brought_to(most, x), arguments)

    @classmethod
    def _marked(cls, x: Any) -> Any:
        """A managed tensor as one of this class; anything else as it is."""
        return x.as_subclass(cls) if type(x) is Tensor and _C.is_managed(x.device) else x

    @classmethod
    def _moved(cls, x: Any) -> Any:
        """Moves as_subclass's result for a CPU tensor, in place unless a graph was recorded on it."""
        if not issubclass(type(x), ManagedTensor) or _C.is_managed(x.device):
            return x
        there = _put(x, DEVICE)
        return there if there is x else there.as_subclass(type(x))


def _writes(name: str, kwargs: dict[str, Any]) -> bool:
    """Whether a function writes its first argument: the moved operand must not be a copy then."""
    return name in _WRITERS or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs


def _has_graph(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and not x.is_leaf


def _brought_to(device: torch.device, x: Any) -> Any:
    """A managed tensor on the device, anything else as it is."""
    if not isinstance(x, Tensor) or not _C.is_managed(x.device) or x.device == device:
        return x
    return _put(x, device)


def _put(x: Tensor, device: str | torch.device) -> Tensor:
    """The tensor itself, moved; a plain copy of a plain one, and of one with a graph."""
    if not issubclass(type(x), ManagedTensor) or _has_graph(x):
        return x.as_subclass(Tensor).to(device)
    with torch._C.DisableTorchFunctionSubclass():
        x.data = x.data.to(device)
    return x


# Functions that only query (x.shape), convert (x.cpu()), or read the CPU's memory (x.numpy()).
_NEED_NO_MOVE = frozenset(
    {"__get__", "__set__", "__delete__", "__repr__", "as_subclass", "cpu", "cuda", "to", "size"}
    | {"__len__", "__hash__", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "type"}
    | {"storage_offset", "is_contiguous", "is_complex", "is_floating_point", "is_signed", "get_device"}
    | {"detach", "requires_grad_", "retain_grad", "register_hook"}
    | {"__array__", "__dlpack__", "__dlpack_device__", "numpy", "tolist", "item", "data_ptr"}
    | {"untyped_storage", "is_pinned", "pin_memory", "is_shared", "share_memory_"}
)
_KEEP_CLASS = frozenset({"__get__", "detach", "requires_grad_"})  # also on the CPU: x.T, x.data
_WRITERS = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"})
_PLAIN_RESULTS = frozenset({*torch.overrides.get_default_nowrap_functions(), Tensor.as_subclass})


def _node_for(x: Tensor, disperse: bool | None) -> str | None:
    """The node that the manager finds for a tensor that is not on the device yet, if it is asked to."""
    from innkeeper.manager import manager

    if disperse is None or _C.is_managed(x.device):
        return None
    return manager().find_device(manager().size_estimate(x), disperse=disperse)


def _made(data: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    if len(data) == 1 and (isinstance(data[0], Tensor) or "dtype" in options):
        return ManagedTensor.create(data[0], **options)
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"ManagedTensor takes data, dtype= and requires_grad=, not {', '.join(options)}")
    sizes = data[0] if len(data) == 1 and isinstance(data[0], torch.Size) else data
    if all(type(size) is int for size in sizes):
        made = torch.empty(sizes or (0,), device=DEVICE)  # ``torch.Tensor()`` has the shape (0,)
    else:
        made = Tensor(*data).to(DEVICE)
    return made.requires_grad_(requires_grad)


def install() -> None:
    """Gives tensors ``pin``, ``unpin`` and ``pinned``, and keeps managed ones so in ``cuda``. Called once."""

    @functools.wraps(_tensor_cuda)
    def cuda(
        self: Tensor,
        device: Any = None,
        non_blocking: bool = False,
        *,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> Tensor:
        if not _C.is_managed(self.device):
            if isinstance(device, int):  # an int would be a managed device, but it means the accelerator
                device = torch.device("cuda", device)
            return _tensor_cuda(self, device, non_blocking, memory_format=memory_format)
        there = placement.brought(self, device)
        return there.to(there.device, memory_format=memory_format)

    def pin(self: Tensor, node: str | None = None) -> None:
        """See ``innkeeper.pin``."""
        placement.pin(self if _has_graph(self) else ManagedTensor._moved(self), node)

    def unpin(self: Tensor) -> None:
        """See ``innkeeper.unpin``."""
        placement.unpin(self)

    def pinned(self: Tensor) -> bool:
        """Whether ``pin`` holds it where it is."""
        return _C.is_managed(self.device) and _C.is_user_pinned(self)

    for name, member in {"cuda": cuda, "pin": pin, "unpin": unpin, "pinned": property(pinned)}.items():
        put(f"torch.Tensor.{name}", member)
