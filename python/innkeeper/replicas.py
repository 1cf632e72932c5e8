"""Replicas of a module that share its parameters, and threads that run them, each at a node of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import chain
from types import FunctionType
from typing import Any

from torch._utils import ExceptionWrapper
from torch.nn.parallel.replicate import replicate as torch_replicate
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.placement import experiment, on
from torch import Tensor, nn


def with_globals(function: Callable[..., Any], **names: object) -> Callable[..., Any]:
    """A function of PyTorch's in whose body these names of its module mean something else."""
    assert isinstance(function, FunctionType)
    scope = function.__globals__ | names
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__)


class _Share(torch.autograd.Function):
    """A parameter for each replica, of the same block; its gradient is their sum, in the replicas' order."""

    @staticmethod
    def forward(ctx: Any, count: int, parameter: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(parameter.view_as(parameter) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, Tensor | None]:
        total = None
        ours = False  # whether total may be written
        for gradient in gradients:
            if gradient is None:
                continue
            if total is None:
                total = gradient
            elif ours and not torch.is_grad_enabled():
                total += gradient
            else:
                total, ours = total + gradient, True
        return None, total


def _shared(tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    if isinstance(tensor, UninitializedTensorMixin):
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
    if torch.is_grad_enabled() and tensor.requires_grad:
        return tuple(_Share.apply(count, tensor))
    return (tensor.detach(),) * count


def follow_activations(module: nn.Module) -> None:
    """Operators on the module's parameters and buffers run where their other operands are, from now on."""
    for tensor in chain(module.parameters(), module.buffers()):
        if not isinstance(tensor, UninitializedTensorMixin):
            _C.set_replicated(tensor, True)


def _copies(tensors: Sequence[Tensor], devices: Sequence[int], detach: bool) -> list[tuple[Tensor, ...]]:
    """Copies of a buffer, but for the first replica; shares of all else."""

    def of_each(tensor: Tensor) -> tuple[Tensor, ...]:
        if isinstance(tensor, nn.Parameter) or (tensor.requires_grad and not detach):
            return _shared(tensor, len(devices))
        kept = tensor.detach()
        return kept, *(kept.clone() for _ in devices[1:])

    return list(zip(*map(of_each, tensors), strict=True))


_replicate = with_globals(torch_replicate, _broadcast_coalesced_reshape=_copies)


def replicate(module: nn.Module, count: int) -> list[nn.Module]:
    """Replicas of the module. Parameters are shared by all; buffers are the module's in the first replica.

    Raises:
        RuntimeError: a parameter is not initialised, or a module is a child of a ScriptModule.

    """
    replicas: list[nn.Module] = _replicate(module, range(count), not torch.is_grad_enabled())
    return replicas


def run_replicas(
    replicas: Sequence[nn.Module],
    parts: Sequence[tuple[tuple[Any, ...], dict[str, Any]]],
    nodes: Sequence[str],
    seeds: Sequence[int],
) -> list[Any]:
    """The replicas' outputs. The first runs on this thread, each of the others on its own thread.

    Raises:
        Exception: the first exception of a replica, when all have ended.

    """
    count = len(replicas)
    results: list[Any] = [None] * count
    modes = _Modes()

    def run(replica: int) -> None:
        args, kwargs = parts[replica]
        try:
            with ExitStack() as scopes:
                if replica != 0:
                    scopes.enter_context(experiment(f"replica {replica}"))
                    _C.manual_seed(seeds[replica])
                    modes.enter(scopes)
                scopes.enter_context(on(nodes[replica]))
                results[replica] = replicas[replica](*args, **kwargs)
        except Exception:
            if count == 1:
                raise
            results[replica] = ExceptionWrapper(where=f"in replica {replica} on node {nodes[replica]}")

    threads = [threading.Thread(target=run, args=(replica,), daemon=True) for replica in range(1, count)]
    for thread in threads:
        thread.start()
    try:
        run(0)
    finally:  # also for a KeyboardInterrupt: no replica may still use the caller's tensors
        for thread in threads:
            thread.join()
    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


class _Modes:
    """PyTorch's settings per thread on which a forward depends: the caller's, for other threads."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = {
            device: (torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in (DEVICE, "cpu")
        }
        self._cache = torch.is_autocast_cache_enabled()
        self._threads = torch.get_num_threads()

    def enter(self, scopes: ExitStack) -> None:
        torch.set_num_threads(self._threads)  # new threads inherit the last value, and DataLoaders set 1
        if self._inference:
            scopes.enter_context(torch.inference_mode())
        scopes.enter_context(torch.set_grad_enabled(self._grad))
        for device, (dtype, enabled) in self._autocast.items():
            scopes.enter_context(torch.autocast(device, dtype, enabled, self._cache))
