"""Streams and events of the managed device, as torch.cuda has them.

They keep the meaning that programs rely on (order within a stream, waits between streams); the engine orders
real queues by each operator's reads and writes, so a missing wait cannot give wrong numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.managed_device.device import index_of

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


class _OfManaged(type):
    """Makes and recognises plain torch.Stream and torch.Event objects of the managed device.

    Instances of real subclasses would be refused by some methods of torch.Event.
    """

    base: type[torch.Stream | torch.Event]

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.base) and _C.is_managed(x.device)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.create(*args, **kwargs)  # type: ignore[attr-defined]


class Stream(metaclass=_OfManaged):
    """``Stream(device=None, priority=0)``: a new stream. ``priority`` is accepted and has no effect."""

    base = torch.Stream

    @staticmethod
    def create(device: Any = None, priority: int = 0, **identity: Any) -> torch.Stream:
        """A new stream, or the one that ``identity`` (stream_id, device_index, device_type) names."""
        if identity:
            return torch.Stream(**identity)
        return torch.Stream(device=torch.device(DEVICE, index_of(device)), priority=priority)


class Event(metaclass=_OfManaged):
    """``Event(enable_timing=False, blocking=False, interprocess=False)``; only the first has an effect."""

    base = torch.Event

    @staticmethod
    def create(
        enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """A new event, not recorded."""
        device = torch.device(DEVICE, _C.current_index())
        return torch.Event(device=device, enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Any = None) -> torch.Stream:
    """The stream of the device that this thread's operators are ordered by."""
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: Any = None) -> torch.Stream:
    """The stream that every thread begins with."""
    kind = int(torch._C._autograd.DeviceType.PrivateUse1.value)
    return torch.Stream(stream_id=0, device_index=index_of(device), device_type=kind)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream``, and its device, the current ones; None does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Makes a stream, and its device, the current ones inside the context; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._before: list[tuple[torch.Stream, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before.append((current_stream(self.stream.device), current_stream()))
            set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            for stream in self._before.pop():
                set_stream(stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``StreamContext(stream)``."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """False: there are no graphs on this device."""
    return False
