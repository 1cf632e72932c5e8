"""What ``torch.cuda`` answers: for the computing nodes, by index, where its users ask for one device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from innkeeper import _C, managed_device
from innkeeper.cuda_names import homes, initialization
from innkeeper.cuda_names.initialization import is_initialized
from innkeeper.cuda_names.initialization import lazy_init as _lazy_init
from innkeeper.cuda_names.put import put
from innkeeper.managed_device import streams
from innkeeper.managed_device.device import computing_nodes
from innkeeper.managed_device.memory import flattened
from innkeeper.managed_device.types import __all__ as types
from torch import Tensor


def install() -> None:
    """Puts the answers in the place of torch.cuda's functions, in its parts too. Once."""
    answers = {name: getattr(managed_device, name) for name in (*_SAME.split(), *types)}
    answers |= {name: globals()[name] for name in _OWN.split()}
    answers |= dict.fromkeys(_NOTHING, do_nothing)
    if torch.backends.cuda.is_built():  # Triton's launches make a GPU current by these
        for name in ("_exchange_device", "_maybe_exchange_device"):
            del answers[name]
    put(torch.cuda, **answers)
    initialization.install()
    for part in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.profiler):
        put(part, **{name: answer for name, answer in answers.items() if hasattr(part, name)})
    history = ("_record_memory_history", "_snapshot", "_dump_snapshot")
    put(torch.cuda.memory, **{name: getattr(managed_device.memory, name) for name in history})
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # libraries take it while they are imported
        put(torch._C, _cuda_getCurrentRawStream=do_nothing)
    put(torch.cuda.nvtx, **dict.fromkeys(_MARKS, do_nothing), range=_Range)
    # Asked by RNNs, for how their weights lie; it would say that PyTorch was built without cuDNN.
    put(torch.backends.cudnn, is_acceptable=lambda tensor: False)


_arch_list_of_build = torch.cuda.get_arch_list

# The names that say the same for each device, or of the process.
_SAME = """
    empty_cache get_allocator_backend is_current_stream_capturing manual_seed manual_seed_all seed
    seed_all stream set_stream StreamContext set_per_process_memory_fraction has_half _is_in_bad_fork
"""
_OWN = """
    Event Stream can_device_access_peer current_device current_stream default_stream device device_count
    device_memory_used device_of get_arch_list get_device_capability get_device_name
    get_device_properties get_rng_state get_rng_state_all init initial_seed ipc_collect is_available
    is_bf16_supported is_initialized is_tf32_supported max_memory_allocated max_memory_cached
    max_memory_reserved mem_get_info memory_allocated memory_cached memory_reserved memory_stats
    memory_stats_as_nested_dict memory_summary reset_accumulated_memory_stats reset_max_memory_allocated
    reset_max_memory_cached reset_peak_memory_stats set_device set_rng_state set_rng_state_all
    synchronize _exchange_device _get_nvml_device_index _lazy_init _maybe_exchange_device
"""
# What only tools of NVIDIA's hear.
_NOTHING = ["start", "stop", "set_sync_debug_mode", "get_sync_debug_mode"]
_MARKS = ["mark", "range_push", "range_pop", "range_start", "range_end"]


def do_nothing(*_: Any, **__: Any) -> int:
    """Stands for what means nothing here."""
    return 0


class _Range:
    """``torch.cuda.nvtx.range``: marks nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, function: Any) -> Any:
        return function


def is_available() -> bool:
    """True, unless ``CUDA_VISIBLE_DEVICES`` hides every device."""
    return not homes.hidden()


# As with CUDA, those that look at a device start it, and those that look whether there is one do not: after
# these a program may still fork. So `_lazy_init` stands where PyTorch has it.


def init() -> None:
    """Starts the runtime."""
    _lazy_init()


def ipc_collect() -> None:
    """Starts the runtime. No memory is shared with other processes."""
    _lazy_init()


def device_count() -> int:
    """How many nodes compute: the accelerators, or the host where there is none. ``homes`` numbers them."""
    return len(homes.nodes())


def current_device() -> int:
    """What ``set_device`` said in this thread, else 0."""
    _lazy_init()
    return homes.current()


def set_device(device: Any) -> None:
    """Makes the device's node this thread's home. A negative index does nothing."""
    index = homes.asked(device)
    if index is None:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    if index >= 0:
        _lazy_init()
        homes.set_current(index)


def _exchange_device(device: int) -> int:
    """Makes the device current, and returns the one before. A negative index does nothing, and returns -1."""
    if device < 0:
        return -1
    before = current_device()
    homes.set_current(device)
    return before


def _maybe_exchange_device(device: int) -> int:
    """The same. Dynamo tells the two functions apart."""
    return _exchange_device(device)


class device:
    """``torch.cuda.device(k)``: the node is the thread's home inside. None and negative ones do nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = homes.CURRENT if device is None else homes.index_of(device) if device != -1 else -1
        self._homes: list[Any] = []

    def __enter__(self) -> None:
        if self.idx != -1:
            _lazy_init()
        self._homes.append(homes.home(self.idx))
        self._homes[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._homes.pop().__exit__(*error)


class device_of(device):
    """``device`` for the home of a tensor; of what is not on the device it does nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(homes.of(obj))


def current_stream(device: Any = None) -> torch.Stream:
    """The stream that this thread's operators are ordered by."""
    _lazy_init()
    return streams.current_stream()


def default_stream(device: Any = None) -> torch.Stream:
    """The stream that every thread begins with."""
    _lazy_init()
    return streams.default_stream()


class Stream(streams.Stream):
    """A stream of the managed device, whichever index was asked for."""

    @staticmethod
    def create(device: Any = None, priority: int = 0, **identity: Any) -> torch.Stream:
        """``torch.cuda.Stream(device, priority)``."""
        _lazy_init()
        return streams.Stream.create(None, priority, **identity)


Event = streams.Event


def synchronize(device: Any = None) -> None:
    """Waits for all work."""
    _lazy_init()
    _C.synchronize()


class Properties(NamedTuple):
    """What scripts ask a card for. Of a simulated one, and of the host, the features are an A100's."""

    name: str
    total_memory: int
    major: int = 8
    minor: int = 0
    multi_processor_count: int = 1
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_multiprocessor: int = 167936
    warp_size: int = 32
    L2_cache_size: int = 41943040
    is_integrated: bool = False
    is_multi_gpu_board: bool = False


def get_device_properties(device: Any = None) -> Any:
    """The node's: its name, its budget, and of a card what it says of itself."""
    node = _node(device)
    if node.kind != "cuda":
        return Properties(f"managed {node.name}", node.budget)
    card = torch.cuda._get_device_properties(int(node.name.partition(":")[2]))  # type: ignore[attr-defined]
    said = {name: getattr(card, name) for name in Properties._fields if hasattr(card, name)}
    return Properties(**(said | {"total_memory": node.budget}))


def get_device_name(device: Any = None) -> str:
    """Such as ``"managed sim:0"``; a card says its own."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(8, 0), or what the card says."""
    said = get_device_properties(device)
    return said.major, said.minor


def get_arch_list() -> list[str]:
    """What kernels are built for: an A100 for simulated nodes and the host; for GPUs PyTorch's own list."""
    names = homes.nodes()
    if any(name.startswith("cuda") for name in names):
        return _arch_list_of_build()
    return ["sm_80"] if names else []


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a device, and every node works in bfloat16: CPUs and simulated nodes do."""
    return is_available() and all(get_device_capability(index) >= (8, 0) for index in range(device_count()))


def is_tf32_supported() -> bool:
    """Whether every node is a card that has TF32."""
    return is_bf16_supported() and all(node.kind == "cuda" for node in computing_nodes())


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """True: tensors of all nodes may meet in an operator."""
    _lazy_init()
    return True


def _get_nvml_device_index(device: Any) -> int:
    return homes.index_of(device)


# Memory, of one node.


def _node(device: Any) -> Any:
    _lazy_init()
    name = homes.node_at(homes.index_of(device))
    return next(node for node in _C.nodes() if node.name == name)


def _bytes(what: str, device: Any) -> int:
    return int(_C.stats()["nodes"][_node(device).name][what])


def memory_allocated(device: Any = None) -> int:
    """Bytes in use on the node now; 0 before the runtime starts."""
    return _bytes("resident", device) if is_initialized() else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use on the node since the last reset; 0 before the runtime starts."""
    return _bytes("peak", device) if is_initialized() else 0


memory_reserved = memory_cached = device_memory_used = memory_allocated
max_memory_reserved = max_memory_cached = max_memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the node's budget. What is not free can be, by eviction."""
    total = _bytes("budget", device)
    return total - memory_allocated(device), total


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Those of torch.cuda's keys that mean something here, of the node; none before the runtime starts."""
    if not is_initialized():
        return {}
    now = {"current": memory_allocated(device), "peak": max_memory_allocated(device)}
    return {"allocated_bytes": {"all": now}, "reserved_bytes": {"all": dict(now)}}


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The same with keys joined by dots; what there is not counts 0."""
    return _Zeros(flattened(memory_stats_as_nested_dict(device)))


class _Zeros(dict[str, int]):
    """Counters of CUDA's allocator that do not exist here are 0."""

    def __missing__(self, key: str) -> int:
        return 0


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """``innkeeper.summary()``."""
    _lazy_init()
    return managed_device.memory_summary(None, abbreviated)


def reset_peak_memory_stats(device: Any = None) -> None:
    """Sets the peaks to what is in use now."""
    _lazy_init()
    _C.reset_stats()


reset_accumulated_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = (
    reset_peak_memory_stats
)


# Random numbers: one stream, whichever node computes.


def initial_seed() -> int:
    """The seed that the stream was last given."""
    _lazy_init()
    return _C.initial_seed()


def get_rng_state(device: Any = None) -> Tensor:
    """The stream's state."""
    _lazy_init()
    return torch.cuda.default_generators[homes.index_of(device)].get_state()


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Continues the stream from there. Does nothing in a forked child that has no device."""
    index = homes.index_of(device)
    if is_initialized():
        torch.cuda.default_generators[index].set_state(new_state)
    else:
        managed_device.set_rng_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The stream's state, once for each device."""
    return [get_rng_state()] * device_count()


def set_rng_state_all(new_states: Any) -> None:
    """Sets what ``get_rng_state_all`` gave."""
    for state in new_states:
        set_rng_state(state)
