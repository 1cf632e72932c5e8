"""Data parallelism over the computing nodes of one process: ``DataParallel``, as PyTorch's.

Each forward splits the batch, runs a replica of the module on each part at a node of its own, and puts the
outputs together. The replicas' parameters are the module's own: only the engine copies them to a node, and
evicts them there, as it does with any block. Gradients are summed once, in the order of the replicas, so
results do not depend on the replicas' speed.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import torch.nn.parallel.scatter_gather as scatter_gather

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.managed_device.device import computing_nodes
from innkeeper.placement import on
from innkeeper.replicas import follow_activations, replicate, run_replicas, with_globals
from torch import Tensor, nn

Where = int | str | torch.device


def is_managed(module: nn.Module) -> bool:
    """Whether the module is ours to run: its first parameter, or else its first buffer, is managed."""
    first = next(chain(module.parameters(), module.buffers()), None)
    return first is not None and _C.is_managed(first.device)


def nodes_of(device_ids: Sequence[Where] | None) -> list[str]:
    """The names of the computing nodes that ``device_ids`` names or numbers; all of them for None.

    Raises:
        ValueError: there is no such node, none is named, or one is named twice.

    """
    names = [node.name for node in computing_nodes()]
    if device_ids is None:
        return names

    def named(which: Where) -> str:
        if isinstance(which, torch.device):
            which = (which.index or 0) if _C.is_managed(which) else str(which)
        if isinstance(which, int) and 0 <= which < len(names):
            return names[which]
        if which in names:
            return str(which)
        raise ValueError(
            f"device_ids has {which!r}, and the {len(names)} computing nodes are {', '.join(names)}"
        )

    chosen = [named(which) for which in device_ids]
    if not chosen:
        raise ValueError("device_ids is empty: it names or numbers the computing nodes to use")
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"device_ids names a node twice: {', '.join(chosen)}")
    return chosen


class DataParallel(nn.DataParallel):
    """A module whose batches are split over the nodes: ``torch.nn.DataParallel`` of managed modules.

    Inputs may be on the CPU. Tensors among them are split along ``dim``, also in tuples, lists and dicts, and
    other objects are given to all replicas. Replica 0 runs on the calling thread with the module's own
    buffers; the others have copies, which are dropped after the forward. A batch with fewer rows than nodes
    uses fewer nodes.

    A replica's random numbers depend only on the stream's state before the forward and on the replica's
    number, not on its speed.

    Args:
        module: the module. It is moved to the device.
        device_ids: the nodes, by number among those that compute or by name (``"sim:1"``). Default: all.
        output_device: the node of the outputs, named in the same way, or ``"cpu"`` (or -1). Default: the
            first.
        dim: the dimension of batches.

    Raises:
        ValueError: there is no such node.

    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: Sequence[Where] | None = None,
        output_device: Where | None = None,
        dim: int = 0,
    ) -> None:
        nn.Module.__init__(self)
        nodes = nodes_of(device_ids)
        self.module = module.to(DEVICE)
        self.dim = dim
        self.device_ids = list(range(len(nodes)))
        self.nodes = nodes
        self.output_device = output_device  # type: ignore[assignment]  # PyTorch has an index there
        self.src_device_obj = torch.device(DEVICE, 0)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output for the whole batch."""
        return data_parallel(self.module, inputs, self.nodes, self.output_device, self.dim, kwargs)


def data_parallel(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[Where] | None = None,
    output_device: Where | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """``module(*inputs, **module_kwargs)``, computed on parts of the batch at several nodes.

    The functional form of ``DataParallel``; arguments and errors are as there.

    Raises:
        RuntimeError: a parameter or buffer is not on the managed device.

    """
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if not _C.is_managed(tensor.device):
            raise RuntimeError(
                f"module must have its parameters and buffers on {DEVICE}, but {name!r} is on {tensor.device}"
            )
    nodes = nodes_of(device_ids)
    to_cpu = output_device == -1 or str(output_device).partition(":")[0] == "cpu"
    output_node = nodes[0] if output_device is None or to_cpu else nodes_of([output_device])[0]
    with torch.autograd.profiler.record_function("DataParallel.forward"):
        follow_activations(module)
        parts = scatter(inputs, module_kwargs or {}, nodes, dim)
        used = nodes[: len(parts)]
        replicas = replicate(module, len(used)) if len(parts) > 1 else [module]
        seeds = replica_seeds(len(parts))
        outputs = run_replicas(replicas, parts, used, seeds)
        result = outputs[0] if len(outputs) == 1 else _gather(outputs, (used, output_node), dim)
    return torch.utils._pytree.tree_map_only(Tensor, Tensor.cpu, result) if to_cpu else result


def replica_seeds(count: int) -> list[int]:
    """The seed of each replica but the first. No random number is drawn for it."""
    if count < 2:
        return [0] * count
    state = hashlib.blake2b(bytes(_C.get_rng_state().tolist()), digest_size=16)

    def seed(replica: int) -> int:
        mine = state.copy()
        mine.update(replica.to_bytes(8, "little"))
        return int.from_bytes(mine.digest()[:8], "little")

    return [seed(replica) for replica in range(count)]


# ---------------------------------------------------------------- the batch, and back


def scatter(
    inputs: tuple[Any, ...], kwargs: dict[str, Any], nodes: Sequence[str], dim: int
) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of each replica, of as many as there are parts of the batch; at least one."""
    positional = _split(inputs, nodes, dim) if inputs else []
    named = _split(kwargs, nodes, dim) if kwargs else []
    count = min((len(parts) for parts in (positional, named) if parts), default=1)
    return [(positional[i] if positional else (), named[i] if named else {}) for i in range(count)]


def _start(tensor: Tensor, node: str) -> Tensor:
    """The tensor, on its way to where it is needed. A node without room for it gets it with its operator."""
    with suppress(torch.OutOfMemoryError):
        _C.prefetch(tensor, node)
    return tensor


def _parts(whole: Tensor, sizes: Sequence[int], nodes: Sequence[str], dim: int) -> tuple[Tensor, ...]:
    """Parts with memory of their own: a view would take all of its base to its node."""
    parts = []
    for part, node in zip(whole.split(list(sizes), dim), nodes, strict=False):
        if _C.is_managed(whole.device):
            parts.append(_start(part.clone(memory_format=torch.contiguous_format), node))
        else:
            with on(node):
                parts.append(part.to(DEVICE))
    return tuple(parts)


class _Scatter(torch.autograd.Function):
    """Parts of a batch, each at its node; the gradient is theirs put together."""

    @staticmethod
    def forward(ctx: Any, nodes: Sequence[str], _sizes: None, dim: int, whole: Tensor) -> tuple[Tensor, ...]:
        ctx.device, ctx.dim = whole.device, dim
        sizes = [part.size(dim) for part in whole.chunk(len(nodes), dim)]
        return _parts(whole, sizes, nodes, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, Tensor]:
        return None, None, None, torch.cat(gradients, ctx.dim).to(ctx.device)


class _Gather(torch.autograd.Function):
    """Outputs put together; the gradient is parted again, each part at its replica's node."""

    @staticmethod
    def forward(ctx: Any, where: tuple[Sequence[str], str], dim: int, *outputs: Tensor) -> Tensor:
        nodes, node = where
        ctx.scalars = outputs[0].dim() == 0 and dim == 0
        if ctx.scalars:
            warnings.warn(
                "Was asked to gather along dimension 0, but all input tensors were scalars; "
                "will instead unsqueeze and return a vector.",
                stacklevel=2,
            )
            outputs = tuple(output.view(1) for output in outputs)
        ctx.nodes, ctx.dim, ctx.sizes = nodes, dim, [output.size(dim) for output in outputs]
        with on(node):
            return torch.cat([_start(output, node) for output in outputs], dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        parts = _parts(gradient, ctx.sizes, ctx.nodes, ctx.dim)
        return (None, None, *(part.view(()) if ctx.scalars else part for part in parts))


_split = with_globals(scatter_gather.scatter, Scatter=_Scatter)
_gather = with_globals(scatter_gather.gather, Gather=_Gather)
