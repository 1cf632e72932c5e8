"""Devices: availability, the current device, names and properties.

There is one for all nodes, or one for each that computes (``innkeeper.configure(devices="each")``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.report import format_bytes

__all__ = [
    "DeviceProperties",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]


def _is_in_bad_fork() -> bool:
    """Whether this is a forked child of a process that had started the runtime: it has no managed device."""
    return _C.is_bad_fork()


def index_of(device: Any = None) -> int:
    """The device index of an argument: None or a device without an index is the current device.

    Args:
        device: None, an index, ``"managed"``, ``"managed:0"`` or a torch.device of these.

    Raises:
        ValueError: another kind of device, or an index other than 0 and LOCAL_RANK if there is one device.
        RuntimeError: there is no device of that index.

    """
    index = device = getattr(device, "idx", device)  # the index in a context such as torch.cuda.device(1)
    if device is not None and not isinstance(device, int):
        device = torch.device(device)
        if not _C.is_managed(device):
            raise ValueError(f"Expected a {torch.device(DEVICE).type} device, but got: {device}")
        index = device.index
    if index is None:
        return _C.current_index()
    if not _C.has_device_per_node() and (index < 0 or index not in (0, _C.local_rank())):
        raise ValueError(
            f"invalid device index {index}: there is one managed device, index 0, for all nodes; "
            "to place by hand use innkeeper.on(node)"
        )
    return _C.valid_index(index)


def is_available() -> bool:
    """True: the host computes where there is no accelerator."""
    return True


def device_count() -> int:
    """1 for all nodes together, or the number of nodes that compute."""
    return _C.device_count()


def current_device() -> int:
    """The index of the calling thread's current device, 0 until it is set."""
    return _C.current_index()


def set_device(device: Any) -> None:
    """Makes a device the current one. A negative index does nothing, as in torch.cuda.

    With one device any other is refused, but for the process's ``LOCAL_RANK`` under torchrun.
    """
    if not (isinstance(device, int) and device < 0):
        torch._C._accelerator_setDeviceIndex(index_of(device))


class device:
    """Context manager that makes a device the current one. None and negative indices do nothing."""

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0
        self.idx = -1 if negative or device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)

    def __exit__(self, *_: object) -> None:
        torch._C._accelerator_maybeExchangeDevice(self.prev_idx)


class device_of(device):
    """``device`` for the device of a tensor or storage; does nothing for one that is elsewhere."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device.index if _C.is_managed(obj.device) else -1)


def init() -> None:
    """Starts the runtime, as the first use of the device does. ValueError if the nodes make no sense."""
    _C.start()


def is_initialized() -> bool:
    """Whether the runtime has started, in a process where it can be used."""
    return _C.started() and not _is_in_bad_fork()


def _lazy_init() -> None:
    """Does nothing: the runtime starts with the first tensor.

    PyTorch takes a device without this for one that is never in use, and 2.11 then waits for nothing in
    ``torch.accelerator.synchronize``.
    """


def synchronize(device: Any = None) -> None:
    """Waits until every queue of every node has done its work."""
    index_of(device)
    _C.synchronize()


def ipc_collect() -> None:
    """Does nothing: no memory is shared with other processes."""


class DeviceProperties(NamedTuple):
    """Properties of the device: its name, bytes of all computing nodes together, and the nodes."""

    name: str
    total_memory: int
    nodes: tuple[str, ...]


def computing_nodes() -> list[_C.NodeInfo]:
    """The nodes where operators run; torch.cuda's users call them device memory. Starts the runtime."""
    return [node for node in _C.nodes() if node.computes]


def nodes_of(device: Any = None) -> list[_C.NodeInfo]:
    """The computing nodes of a device: all, or with a device for each node the one that it prefers."""
    index, nodes = index_of(device), computing_nodes()
    return [nodes[index % len(nodes)]] if _C.has_device_per_node() else nodes


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, total bytes and nodes."""
    total = sum(node.budget for node in nodes_of(device))
    return DeviceProperties(get_device_name(device), total, tuple(node.name for node in _C.nodes()))


def get_device_name(device: Any = None) -> str:
    """Such as ``"managed (sim:0 64.0 MiB, host 1.0 GiB)"``; of several devices ``"managed sim:0"``."""
    if _C.has_device_per_node():
        return f"managed {nodes_of(device)[0].name}"
    index_of(device)
    return f"managed ({', '.join(f'{node.name} {format_bytes(node.budget)}' for node in _C.nodes())})"


def _cuda_nodes() -> list[torch.device]:
    return [torch.device(node.name) for node in computing_nodes() if node.kind == "cuda"]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether all computing nodes work in bfloat16. CPUs and simulated ones do; GPUs are asked."""
    for cuda in _cuda_nodes():
        with torch.cuda.device(cuda):
            if not torch.cuda.is_bf16_supported(including_emulation):
                return False
    return True


def is_tf32_supported() -> bool:
    """Whether every computing node is a GPU that has TF32."""
    cuda_nodes = _cuda_nodes()
    if not cuda_nodes or len(cuda_nodes) < len(computing_nodes()):
        return False
    return all(torch.cuda.get_device_capability(cuda) >= (8, 0) for cuda in cuda_nodes)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("managed")`` may lower to."""
    return [torch.float16, torch.bfloat16]
