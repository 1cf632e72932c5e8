"""The answers of ``torch.cuda``.

``torch.managed``'s functions take the place of ``torch.cuda``'s, since ``cuda:i`` is ``managed:i``. As with
CUDA, those that look at a device start the runtime first, and those that look whether there is one do not.
Functions that PyTorch writes in Python over these, such as those of ``torch.cuda.random``, stay PyTorch's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from innkeeper import _C, managed_device
from innkeeper.cuda_compat import initialization, visible
from innkeeper.cuda_compat.initialization import is_initialized
from innkeeper.cuda_compat.initialization import lazy_init as _lazy_init
from innkeeper.cuda_compat.put import put
from innkeeper.managed_device import memory, streams
from innkeeper.managed_device.device import computing_nodes, index_of, nodes_of
from innkeeper.managed_device.device import device as device_context
from innkeeper.managed_device.types import SPARSE
from innkeeper.managed_device.types import __all__ as types

# Names of torch.managed. Those of the second list start the runtime.
_SAME = """
    device_of empty_cache get_allocator_backend is_current_stream_capturing
    max_memory_allocated max_memory_cached max_memory_reserved memory_allocated memory_cached memory_reserved
    memory_snapshot
    set_stream stream Event StreamContext has_half _is_in_bad_fork
    set_per_process_memory_fraction get_per_process_memory_fraction device_memory_used
"""
_STARTING = """
    current_device current_stream default_stream init ipc_collect mem_get_info memory_summary
    reset_peak_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached set_device synchronize
"""
# Names of this module.
_OWN = """
    Stream can_device_access_peer device get_arch_list get_device_capability get_device_name
    get_device_properties is_bf16_supported is_initialized is_tf32_supported memory_stats
    memory_stats_as_nested_dict _exchange_device _get_nvml_device_index _lazy_init _maybe_exchange_device
"""
# Functions that act only on NVIDIA's tools.
_NOTHING = ["start", "stop", "set_sync_debug_mode", "get_sync_debug_mode"]
_MARKS = ["mark", "range_push", "range_pop", "range_start", "range_end"]

_CLOCK_HZ = 1.41e9  # an A100's, whose features simulated GPUs have

_arch_list_of_build = torch.cuda.get_arch_list


def install() -> None:
    """Replaces torch.cuda's functions, in its submodules too. Called once per process."""
    answers = {name: getattr(managed_device, name) for name in (*_SAME.split(), *types)}
    answers |= {name: _starting(getattr(managed_device, name)) for name in _STARTING.split()}
    answers |= {name: globals()[name] for name in _OWN.split()}
    answers |= {name: getattr(visible, name) for name in ("device_count", "is_available")}
    answers |= dict.fromkeys(_NOTHING, do_nothing)
    if torch.backends.cuda.is_built():  # Triton's launches make a GPU current by these
        for name in ("_exchange_device", "_maybe_exchange_device"):
            del answers[name]
    put(torch.cuda, **answers)
    _install_types()
    initialization.install()
    for part in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.profiler):
        put(part, **{name: answer for name, answer in answers.items() if hasattr(part, name)})
    history = ("_record_memory_history", "_snapshot", "_dump_snapshot")
    put(torch.cuda.memory, **{name: getattr(memory, name) for name in history})
    put(torch._C, **{name: stub for name, stub in _OF_CUDA_BUILDS.items() if not hasattr(torch._C, name)})
    put(torch.cuda.nvtx, **dict.fromkeys(_MARKS, do_nothing), range=_Range)
    # Asked by RNNs, for how their weights lie; it would say that PyTorch was built without cuDNN.
    put(torch.backends.cudnn, is_acceptable=lambda tensor: False)


def _install_types() -> None:
    """Has the old types say that they are CUDA's; PyTorch reads a storage type's device from that name."""
    for name in types:
        getattr(managed_device, name).__module__ = "torch.cuda"
    for kind in SPARSE.values():
        kind.__module__ = "torch.cuda.sparse"
    put(torch.cuda.sparse, **SPARSE)


def do_nothing(*_: Any, **__: Any) -> int:
    """Replaces functions that have no effect here."""
    return 0


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    torch.accelerator.set_stream(torch.Stream(stream_id, device_index, device_type))


# Names of torch._C that builds without CUDA lack, and that libraries and PyTorch's own tests call.
_OF_CUDA_BUILDS: dict[str, Callable[..., Any]] = {
    "_cuda_clearCublasWorkspaces": do_nothing,
    "_cuda_getCurrentRawStream": do_nothing,
    "_cuda_setDevice": managed_device.set_device,
    "_cuda_setStream": _set_stream,
    "_cuda_sleep": lambda cycles: _C.keep_busy(cycles / _CLOCK_HZ),
}


def _starting(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def start(*args: Any, **kwargs: Any) -> Any:
        _lazy_init()
        return function(*args, **kwargs)

    return start


class _Range:
    """``torch.cuda.nvtx.range``: marks nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function


class device(device_context):
    """``torch.cuda.device``: makes a device the current one inside. None and negative indices do nothing."""

    def __enter__(self) -> None:
        if self.idx >= 0:
            _lazy_init()
        super().__enter__()


def _exchange_device(device: int) -> int:
    """Makes the device current, and returns the one before. A negative index does nothing, and returns -1."""
    return -1 if device < 0 else torch._C._accelerator_exchangeDevice(device)


def _maybe_exchange_device(device: int) -> int:
    """The same. Dynamo tells the two functions apart."""
    return _exchange_device(device)


class Stream(streams.Stream):
    """``torch.cuda.Stream``."""

    @staticmethod
    def create(device: Any = None, priority: int = 0, **identity: Any) -> torch.Stream:
        """``torch.cuda.Stream(device, priority)``."""
        _lazy_init()
        return streams.Stream.create(device, priority, **identity)


# Properties of a device.


class Properties(NamedTuple):
    """Properties that scripts ask of a GPU. A simulated one and the host have the features of an A100."""

    name: str
    total_memory: int
    major: int = 8
    minor: int = 0
    multi_processor_count: int = 108
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_multiprocessor: int = 167936
    warp_size: int = 32
    L2_cache_size: int = 41943040
    is_integrated: bool = False
    is_multi_gpu_board: bool = False


def _known(device: Any, otherwise: str) -> int:
    if isinstance(device, int) and device < 0:
        raise AssertionError(otherwise)
    try:
        return index_of(device)
    except RuntimeError as error:
        raise AssertionError(otherwise) from error  # CUDA's, which programs catch that probe for devices


def get_device_properties(device: Any = None) -> Properties:
    """The node's name and budget, and a GPU's own properties."""
    _lazy_init()
    (node,) = nodes_of(_known(device, "Invalid device id"))
    if node.kind != "cuda":
        return Properties(f"managed {node.name}", node.budget)
    gpu = torch.cuda._get_device_properties(int(node.name.partition(":")[2]))  # type: ignore[attr-defined]
    said = {name: getattr(gpu, name) for name in Properties._fields if hasattr(gpu, name)}
    return Properties(**(said | {"total_memory": node.budget}))


def get_device_name(device: Any = None) -> str:
    """Such as ``"managed sim:0"``; a GPU has its own name."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(8, 0), or a GPU's own capability."""
    said = get_device_properties(device)
    return said.major, said.minor


def get_arch_list() -> list[str]:
    """The kernels' architectures: an A100's for simulated nodes and the host, PyTorch's list for GPUs."""
    names = visible.nodes()
    if any(name.startswith("cuda") for name in names):
        return _arch_list_of_build()
    return ["sm_80"] if names else []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a device, and every node works in bfloat16: CPUs and simulated nodes do."""
    count = visible.device_count()
    return count > 0 and all(get_device_capability(index) >= (8, 0) for index in range(count))


def is_tf32_supported() -> bool:
    """Whether every node is a GPU that has TF32."""
    return is_bf16_supported() and all(node.kind == "cuda" for node in computing_nodes())


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device copies from the other's memory directly: True but for a device and itself."""
    _lazy_init()
    return _known(device, "Invalid device id") != _known(peer_device, "Invalid peer device id")


def _get_nvml_device_index(device: Any) -> int:
    return index_of(device)


# Counters of memory.


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Those of torch.cuda's keys that mean something here; none before the runtime starts."""
    if not is_initialized():
        return {}
    return torch._C._accelerator_getDeviceStats(index_of(device))


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The same with keys joined by dots; missing values count as 0."""
    return _Zeros(memory.flattened(memory_stats_as_nested_dict(device)))


class _Zeros(dict[str, int]):
    """Counters of CUDA's allocator that do not exist here are 0."""

    def __missing__(self, key: str) -> int:
        return 0
