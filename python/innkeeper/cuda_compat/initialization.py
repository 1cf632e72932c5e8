"""The initialization state of ``torch.cuda``, answered from the managed runtime's state.

PyTorch and libraries read this state to decide whether there is a random state to save
(``torch.utils.checkpoint``), whether a process may still fork, whether DeviceMesh selects a device, and
whether ``_lazy_call`` queues a call. docs/design/cuda_state.md lists all such state with its readers.

``_lazy_call`` and its queue are PyTorch's own. As with CUDA, PyTorch calls ``lazy_init`` before an operator
uses a device that a program names. The first thread there runs the queue, and the others wait.
"""

from __future__ import annotations

import importlib
import itertools
import os
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C, managed_device
from innkeeper.cuda_compat import visible
from innkeeper.cuda_compat.put import put
from innkeeper.managed_device.device import _is_in_bad_fork
from innkeeper.torch_patches.patch import apply

_initialized = False  # The runtime has started, and all queued calls have run.
_runs_queue = False  # A thread, which holds torch.cuda's lock, runs the queued calls.
_cuda_is_started = False  # PyTorch's CUDA is initialized; stays False if no node is a GPU.


def install() -> None:
    """Installs the answers. Called once per process."""
    apply("type(torch.cuda)", lambda: setattr(torch.cuda, "__class__", _Cuda))
    # Reentrant, because a queued call may queue another.
    put(torch.cuda, default_generators=Generators(), _initialization_lock=threading.RLock())
    managed_device._lazy_init = lazy_init
    os.register_at_fork(after_in_child=_forget_in_child)


def _forget_in_child() -> None:
    """A child has no device, or starts its own. The lock's owner may not exist there."""
    global _initialized, _runs_queue
    _initialized = _runs_queue = False
    put(torch.cuda, _initialization_lock=threading.RLock())


def is_initialized() -> bool:
    """``torch.cuda.is_initialized``: whether the runtime has started and the queued calls have run.

    Runs them if the runtime was started without PyTorch's functions, as by ``innkeeper.stats()``. False
    within a queued call, while another thread runs the queue, and in a child forked after the start.
    """
    if _initialized:
        return True
    if _runs_queue or not _C.started() or _is_in_bad_fork():
        return False
    lazy_init()
    return True


def lazy_init() -> None:
    """``torch.cuda._lazy_init``: starts the runtime, then runs the queued calls.

    Raises:
        RuntimeError: this is a child forked after the start, or no device is visible.
        torch.cuda.DeferredCudaCallError: a queued call failed. The queue is kept, so the next use fails too.

    """
    global _initialized, _runs_queue
    if _initialized:
        return
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
            "the 'spawn' start method"
        )
    if visible.hidden():
        raise RuntimeError("No CUDA GPUs are available")
    with torch.cuda._initialization_lock:
        # Another thread did it meanwhile, or a queued call of this thread is running.
        if _initialized or _runs_queue:
            return
        _C.start()
        visible.keep_visible()
        _start_cuda_itself()
        _runs_queue = True
        try:
            _run_queued_calls()
        finally:
            _runs_queue = False
        _initialized = not _is_in_bad_fork()  # a queued call may have forked this process


def _run_queued_calls() -> None:
    """Runs the calls that ``torch.cuda._lazy_call`` queued, also while they run; seeds come last."""
    cuda: Any = torch.cuda
    seeds = (call for call in cuda._lazy_seed_tracker.get_calls() if call)
    for call, where in itertools.chain(cuda._queued_calls, seeds):
        try:
            call()
        except Exception as error:
            raise torch.cuda.DeferredCudaCallError(
                f"CUDA call failed lazily at initialization with error: {error}\n\n"
                f"CUDA call was originally invoked at:\n\n{''.join(where)}"
            ) from error
    cuda._queued_calls.clear()


def _start_cuda_itself() -> None:
    """Initializes PyTorch's CUDA if a node is a GPU, once.

    That binds functions of the GPU to ``torch.cuda``, and overwrites ``default_generators``.
    """
    global _cuda_is_started
    if _cuda_is_started or all(node.kind != "cuda" for node in _C.nodes()):
        return
    generators = torch.cuda.default_generators
    torch._C._cuda_init()
    put(torch.cuda, default_generators=generators)
    _cuda_is_started = True


class _Cuda(ModuleType):
    """The type of the module ``torch.cuda``: a module cannot have a property, but its type can."""

    @property
    def _initialized(self) -> bool:
        return is_initialized() or bool(self.__dict__["_initialized"])

    @_initialized.setter
    def _initialized(self, value: bool) -> None:
        self.__dict__["_initialized"] = value  # tests set it and put it back; False follows the runtime again

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)  # cloudpickle knows modules by their exact type


class Generators(Sequence[torch.Generator]):
    """``torch.cuda.default_generators``: empty before the start, then one for each device.

    A process of torchrun's may also say its ``LOCAL_RANK``.
    """

    def __len__(self) -> int:
        return _C.device_count() if _C.started() else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not len(self) or (index >= len(self) and index != _C.local_rank()):
            raise IndexError(f"generator {index} of {len(self)}")
        return _C.default_generator(index if index >= 0 else index + len(self))
