"""Streams and events of the managed device, as torch.cuda has them.

They keep the meaning that programs rely on (order within a stream, waits between streams); the engine orders
real queues by what each operator reads and writes, so a missing wait cannot give wrong numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from innkeeper._register import DEVICE
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


class Stream(torch.Stream):
    """A stream of the managed device. ``priority`` is accepted and has no effect."""

    def __new__(cls, device: Any = None, priority: int = 0, **identity: Any) -> Stream:
        """A new stream, or the existing one that ``identity`` names."""
        if identity:  # stream_id, device_index, device_type: names a stream that exists
            return super().__new__(cls, **identity)
        return super().__new__(cls, device=torch.device(DEVICE, index_of(device)), priority=priority)


class Event(torch.Event):
    """An event of the managed device: ``record``, ``wait``, ``query``, ``synchronize``, ``elapsed_time``."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        """Makes an event; ``blocking`` and ``interprocess`` are accepted as in torch.cuda."""
        device = torch.device(DEVICE, 0)
        return super().__new__(
            cls, device=device, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def current_stream(device: Any = None) -> torch.Stream:
    """The stream that this thread's operators are ordered by."""
    return torch.accelerator.current_stream(index_of(device))


def default_stream(device: Any = None) -> torch.Stream:
    """The stream that every thread begins with."""
    return Stream(stream_id=0, device_index=index_of(device), device_type=_device_type())


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` the current one; None does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Makes a stream the current one inside the context; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[torch.Stream] = []

    def __enter__(self) -> None:
        self._previous.append(current_stream())
        set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        set_stream(self._previous.pop())


def stream(stream: torch.Stream | None) -> StreamContext:
    """``StreamContext(stream)``."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """False: there are no graphs on this device."""
    return False


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)
