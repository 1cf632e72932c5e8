"""accelerate: half precision on the managed device, device maps, several processes, and exact resuming.

To support the device itself, accelerate would need ``"managed"`` in the list of ``Accelerator.__init__``
(``supported_device``) and a branch in ``get_grad_scaler``. It would also need ``torch.accelerator`` where it
asks each vendor's module in turn: in ``get_max_memory``, and in ``PartialState._prepare_backend``, without
which each process trains alone.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.distributed import BACKEND
from innkeeper.integrations import ACCELERATE_DEVICE
from innkeeper.integrations.imports import add_to_lists, replace, replace_method
from innkeeper.torch_patches.patch import apply


def chosen() -> bool:
    """Whether accelerate, and the libraries that ask it, must use the managed device."""
    return os.environ.get(ACCELERATE_DEVICE) == DEVICE


def total_budget() -> int:
    """Bytes of memory for tensors, on all nodes together."""
    return sum(int(node.budget) for node in _C.nodes() if node.kind != "disk")


def _grad_scaler(own: Any) -> Any:
    def get_grad_scaler(distributed_type: Any = None, **options: Any) -> Any:
        if not chosen() or str(distributed_type).endswith("FSDP"):
            return own(distributed_type, **options)
        return torch.amp.GradScaler(DEVICE, **options)

    return get_grad_scaler


def _max_memory(own: Any) -> Any:
    def get_max_memory(max_memory: Any = None) -> Any:
        memory = own(max_memory)
        if max_memory is not None or not chosen():
            return memory
        return {0: total_budget()} | {
            where: size for where, size in memory.items() if not isinstance(where, int)
        }

    return get_max_memory


def _stream_file(directory: Any, process: int) -> Path:
    return Path(directory) / f"managed_random_states_{process}.pt"


def save_stream(directory: Any, process: int) -> None:
    """Saves the device's random stream beside the states of others, which libraries save one by one."""
    if _C.started():
        torch.save(_C.get_rng_state(), _stream_file(directory, process))


def load_stream(directory: Any, process: int) -> None:
    """Takes up the stream that was saved, if one was."""
    file = _stream_file(directory, process)
    if file.is_file():
        _C.set_rng_state(torch.load(file, weights_only=True))


def _and_stream(directory: str, with_stream: Any) -> Any:
    """Makes a function that saves or loads in a directory do so with the random stream, too."""

    def make(own: Any) -> Any:
        signature = inspect.signature(own)

        @functools.wraps(own)
        def both(*given: Any, **named: Any) -> Any:
            done = own(*given, **named)
            arguments = signature.bind(*given, **named).arguments
            with_stream(arguments[directory], arguments["process_index"])
            return done

        return both

    return make


def _keeps_to_cpu(own: Any) -> Any:
    """Gives the CPU to a caller that asks for it: Innkeeper's setting would override ``cpu=True``."""

    @functools.wraps(own)
    def __init__(self: Any, cpu: bool = False, **others: Any) -> None:
        if not (cpu and chosen()):
            own(self, cpu, **others)
            return
        del os.environ[ACCELERATE_DEVICE]
        try:
            own(self, cpu, **others)
        finally:
            os.environ[ACCELERATE_DEVICE] = DEVICE

    return __init__


def _together(state: ModuleType) -> Any:
    """Makes one group, over Innkeeper's backend, of the processes of torchrun or ``accelerate launch``.

    It is the kind of group that accelerate has for CPUs: one device for each process, without an index.
    """
    kinds = state.DistributedType

    def make(own: Any) -> Any:
        @functools.wraps(own)
        def _prepare_backend(self: Any, cpu: bool = False, *others: Any, **named: Any) -> tuple[Any, Any]:
            backend, kind = own(self, cpu, *others, **named)
            if cpu or kind != kinds.NO or not chosen() or "LOCAL_RANK" not in os.environ:
                return backend, kind
            return backend or BACKEND, kinds.MULTI_CPU

        return _prepare_backend

    return make


def _adapt_state(state: ModuleType) -> None:
    replace_method(state, "PartialState.__init__", _keeps_to_cpu)
    if hasattr(state, "DistributedType"):
        replace_method(state, "PartialState._prepare_backend", _together(state))


def _adapt_checkpointing(checkpointing: ModuleType) -> None:
    replace(checkpointing, "save_accelerator_state", _and_stream("output_dir", save_stream))
    replace(checkpointing, "load_accelerator_state", _and_stream("input_dir", load_stream))


def _adapt_accelerator(accelerator: ModuleType) -> None:
    add_to_lists(accelerator, "Accelerator.__init__", DEVICE)


def _adapt_modeling(modeling: ModuleType) -> None:
    replace(modeling, "get_grad_scaler", _grad_scaler)
    replace(modeling, "get_max_memory", _max_memory)
    # It asks CUDA how many devices there are, and warns of the first.
    log = logging.getLogger(modeling.__name__)
    apply("logging.getLogger(accelerate.utils.modeling).filters", lambda: log.addFilter(_is_told))


def _is_told(line: logging.LogRecord) -> bool:
    return not (chosen() and line.getMessage().startswith("Device 0 is not available"))


AFTER = {
    "accelerate.accelerator": _adapt_accelerator,
    "accelerate.checkpointing": _adapt_checkpointing,
    "accelerate.state": _adapt_state,
    "accelerate.utils.modeling": _adapt_modeling,
}
