"""Memory of a device under torch.cuda's names. ``innkeeper.stats()`` says it node by node."""

from __future__ import annotations

from typing import Any

import torch
from innkeeper import _C, report
from innkeeper._names import DEVICE
from innkeeper.managed_device.device import index_of, is_initialized
from innkeeper.managed_device.memory_history import (  # noqa: F401  (torch.cuda.memory has them too)
    _dump_snapshot,
    _record_memory_history,
    _snapshot,
)
from innkeeper.manager import manager

__all__ = [
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def _stat(what: str, which: str, device: Any) -> int:
    """0 before the runtime starts, which this does not do."""
    if not is_initialized():
        return 0
    return torch._C._accelerator_getDeviceStats(index_of(device))[what]["all"][which]


def memory_allocated(device: Any = None) -> int:
    """Bytes in use on the device's nodes now: tensors that are there, and kernels' own memory.

    Tensors that the engine has evicted do not count; ``memory_stats()["requested_bytes.all.current"]`` counts
    the device's living tensors wherever they are. 0 before the runtime starts, which this does not do.
    """
    return _stat("allocated_bytes", "current", device)


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use since the last reset: the sum of each node's own peak."""
    return _stat("allocated_bytes", "peak", device)


def memory_reserved(device: Any = None) -> int:
    """Bytes that the device's allocator keeps.

    With one device these are the bytes in use. With a device for each node they include the bytes that a
    caching allocator would keep until ``empty_cache``: the most that the device's tensors have had since its
    last call, as far as they fit.
    """
    return _stat("reserved_bytes", "current", device)


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were kept since the last reset."""
    return _stat("reserved_bytes", "peak", device)


memory_cached, max_memory_cached, device_memory_used = memory_reserved, max_memory_reserved, memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the budgets of the device's nodes. Eviction can free the other bytes."""
    return torch._C._accelerator_getMemoryInfo(index_of(device))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """torch.cuda's counters, and ``innkeeper.stats()`` under ``innkeeper``."""
    return torch._C._accelerator_getDeviceStats(index_of(device)) | {"innkeeper": report.stats()}


def memory_stats(device: Any = None) -> dict[str, Any]:
    """``memory_stats_as_nested_dict`` with keys joined by dots, in order."""
    return flattened(memory_stats_as_nested_dict(device))


def flattened(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of the dict and of dicts within, by their keys joined by dots, in order."""
    flat: dict[str, Any] = {}
    for key in sorted(nested):
        value = nested[key]
        flat |= flattened(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def memory_snapshot(*_: Any, **__: Any) -> list[dict[str, Any]]:
    """Tensors' memory in ``_snapshot()``: a list of segments, in torch.cuda's form."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return segments


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The device's memory in one line, and ``innkeeper.summary()``; abbreviated, the line and its totals."""
    free, budget = mem_get_info(device)
    counters = torch._C._accelerator_getDeviceStats(index_of(device))

    def of(name: str) -> str:
        count = counters[name]["all"]
        return f"{report.format_bytes(count['current'])} (peak {report.format_bytes(count['peak'])})"

    line = (
        f"{torch.device(DEVICE, index_of(device))}: allocated {of('allocated_bytes')}, reserved "
        f"{of('reserved_bytes')}, of its tensors {of('requested_bytes')}; "
        f"free {report.format_bytes(free)} of {report.format_bytes(budget)}"
    )
    text = report.summary()
    if abbreviated:
        text = "\n".join(line for line in text.splitlines() if line[0].isdigit())
    return f"{line}\n{text}"


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets the device's peaks to the bytes in use now.

    With one device the counters of ``innkeeper.stats()`` go to zero as well.
    """
    torch._C._accelerator_resetPeakStats(index_of(device))


reset_accumulated_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = (
    reset_peak_memory_stats
)


def empty_cache() -> None:
    """Gives memory that is cached but free back to the computing devices and the system."""
    if is_initialized():
        _C.empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Keeps accelerators' budgets to a fraction of their capacity: ``manager().reserve = 1 - fraction``."""
    index_of(device)
    manager().reserve = 1 - fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """``1 - manager().reserve``."""
    index_of(device)
    return 1 - manager().reserve


def get_allocator_backend() -> str:
    """``"innkeeper"``."""
    return "innkeeper"
