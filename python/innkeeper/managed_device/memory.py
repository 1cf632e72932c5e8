"""Memory of a device under torch.cuda's names. ``innkeeper.stats()`` says it node by node."""

from __future__ import annotations

from typing import Any

from innkeeper import _C, report
from innkeeper.managed_device.device import computing_nodes, index_of, is_initialized
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
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def _nodes(device: Any) -> list[_C.NodeInfo]:
    """The nodes of a device: all that compute, or the one that its index prefers."""
    index, nodes = index_of(device), computing_nodes()
    return [nodes[index % len(nodes)]] if _C.has_device_per_node() else nodes


def _total(what: str, device: Any) -> int:
    of_nodes = _C.stats()["nodes"]
    return sum(int(of_nodes[node.name][what]) for node in _nodes(device))


def _counted(device: Any) -> dict[str, int]:
    """Keys: allocated, peak, reserved and peak_reserved, in bytes."""
    if not is_initialized():
        return dict.fromkeys(("allocated", "peak", "reserved", "peak_reserved"), 0)
    if _C.has_device_per_node():
        return _C.index_memory(index_of(device))
    now, peak = _total("resident", device), _total("peak", device)
    return {"allocated": now, "peak": peak, "reserved": now, "peak_reserved": peak}


def memory_allocated(device: Any = None) -> int:
    """Bytes in use. 0 before the runtime starts, which this does not do.

    With one device: tensors that are on the computing nodes, and kernels' own memory. With a device for each
    node: the device's living tensors, wherever they are; ``innkeeper.stats()`` says what is on its node.
    """
    return _counted(device)["allocated"]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use since the last reset. With one device: the sum of each node's peak."""
    return _counted(device)["peak"]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator keeps: those in use, and with a device for each node those in use before.

    ``empty_cache`` gives back what is not in use.
    """
    return _counted(device)["reserved"]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that were kept since the last reset."""
    return _counted(device)["peak_reserved"]


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def device_memory_used(device: Any = None) -> int:
    """Bytes in use on the device's nodes."""
    return _total("resident", device) if is_initialized() else 0


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the budgets of the device's nodes. What is not free can be, by eviction."""
    total = _total("budget", device)
    return total - device_memory_used(device), total


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Those of torch.cuda's keys that mean something here, and ``innkeeper.stats()`` under ``innkeeper``."""
    counted = _counted(device)
    return {
        "allocated_bytes": {"all": {"current": counted["allocated"], "peak": counted["peak"]}},
        "reserved_bytes": {"all": {"current": counted["reserved"], "peak": counted["peak_reserved"]}},
        "innkeeper": report.stats(),
    }


def memory_stats(device: Any = None) -> dict[str, Any]:
    """``memory_stats_as_nested_dict`` with keys joined by dots, in order."""
    return flattened(memory_stats_as_nested_dict(device))


def flattened(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """What stands in the dict and in dicts within, by its keys joined by dots, in order."""
    flat: dict[str, Any] = {}
    for key in sorted(nested):
        value = nested[key]
        flat |= flattened(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """``innkeeper.summary()``; abbreviated, its last lines, the totals."""
    index_of(device)
    text = report.summary()
    return "\n".join(line for line in text.splitlines() if line[0].isdigit()) if abbreviated else text


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets the peaks to what is in use now. The counters of ``innkeeper.stats()`` go to zero as well."""
    _C.reset_index_peaks(index_of(device))
    _C.reset_stats()


reset_accumulated_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = (
    reset_peak_memory_stats
)


def empty_cache() -> None:
    """Gives memory that is cached but free back to the computing devices and the system."""
    if is_initialized():
        _C.empty_reserved()
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
