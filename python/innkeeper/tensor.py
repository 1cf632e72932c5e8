"""ManagedTensor: the predecessor's name for a tensor on the managed device.

A managed tensor is a plain ``torch.Tensor``; nothing needs a subclass. The class makes such tensors,
recognises them with ``isinstance``, and lets ``x.as_subclass(ManagedTensor)`` work for programs that are
written so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._pytree import tree_map

import torch
from innkeeper import _C, placement
from innkeeper._register import DEVICE
from torch import Tensor


class _ManagedMeta(type(Tensor)):  # type: ignore[misc]  # the metaclass has no static name
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and _C.is_managed(instance.device)

    def __call__(cls, data: Any = (), **options: Any) -> Tensor:
        return cls.create(data, **options)


class ManagedTensor(Tensor, metaclass=_ManagedMeta):
    """Makes and recognises tensors on the managed device.

    ``ManagedTensor(data)`` and the class methods give plain tensors. ``x.as_subclass(ManagedTensor)`` gives
    one that is moved to the device at its first use in an operator, has ``pin`` and ``unpin``, and whose
    results have them too; that costs a few microseconds an operator, which a plain managed tensor does not.

        x = ManagedTensor([[1.0, 2.0]], requires_grad=True)
        isinstance(x * 2, ManagedTensor)  # True: it is about the device
    """

    @staticmethod
    def create(data: Any, **options: Any) -> Tensor:
        """Copies ``data`` to a new tensor as ``torch.tensor`` does; takes ``dtype``, ``requires_grad``."""
        if isinstance(data, Tensor):
            requires_grad = options.pop("requires_grad", False)
            return data.detach().to(DEVICE, copy=True, **options).requires_grad_(requires_grad)
        return torch.tensor(data, device=DEVICE, **options)

    @staticmethod
    def wrap(x: Tensor, disperse: bool | None = None) -> Tensor:
        """``x`` on the managed device: ``x`` itself if it is there, else a copy through which gradients flow.

        Args:
            x: any shape, dtype and device.
            disperse: choose the node as ``DeviceManager.find_device`` does; by default the thread's home.

        """
        if disperse is None or _C.is_managed(x.device):
            return x.to(DEVICE)
        from innkeeper.manager import manager

        with placement.on(manager().find_device(manager().size_estimate(x), disperse)):
            return x.to(DEVICE)

    # What an instance made by as_subclass has.

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _NEED_NO_MOVE:
            args, kwargs = tree_map(_moved, (tuple(args), kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
        return result if func in _PLAIN_RESULTS else tree_map(_marked, result)

    def cuda(self, device: Any = None, *, disperse: bool | None = None, **_: Any) -> Tensor:  # type: ignore[override]
        """Returns it on the managed device, which is what the predecessor's users mean by ``cuda``."""
        if device is not None and not _C.is_managed(torch.device(device)):
            raise ValueError(
                f"place a managed tensor with innkeeper.on(node) or disperse=, not with {device!r}"
            )
        return ManagedTensor.wrap(self.as_subclass(Tensor), disperse).as_subclass(ManagedTensor)

    @property
    def pinned(self) -> bool:
        """Whether ``pin`` holds it where it is."""
        return _C.is_managed(self.device) and _C.is_user_pinned(self)

    def pin(self, node: str | None = None) -> None:
        """See ``innkeeper.pin``."""
        placement.pin(_moved(self), node)

    def unpin(self) -> None:
        """See ``innkeeper.unpin``."""
        placement.unpin(self)


# What only asks (x.shape) or converts (x.cpu()).
_NEED_NO_MOVE = frozenset(
    {"__get__", "__set__", "__delete__", "__repr__", "as_subclass", "cpu", "cuda", "to", "size"}
)
_PLAIN_RESULTS = frozenset({*torch.overrides.get_default_nowrap_functions(), Tensor.as_subclass})


def _marked(x: Any) -> Any:
    """A managed tensor as a ManagedTensor; anything else as it is."""
    return x.as_subclass(ManagedTensor) if type(x) is Tensor and _C.is_managed(x.device) else x


def _moved(x: Any) -> Any:
    """Moves what as_subclass made of a CPU tensor, in place unless a graph was recorded on it."""
    if type(x) is not ManagedTensor or _C.is_managed(x.device):
        return x
    if x.requires_grad and not x.is_leaf:
        return x.as_subclass(Tensor).to(DEVICE).as_subclass(ManagedTensor)
    with torch._C.DisableTorchFunctionSubclass():
        x.data = x.data.to(DEVICE)
    return x
