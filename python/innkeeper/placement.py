"""Where bytes are and where they should be: the verbs on tensors and modules, and threads' preferred nodes.

Every verb takes a managed tensor, or a module and then means all its parameters and buffers. A view shares
its block with its base, so a verb on one is a verb on both. A node is named as in ``manager().nodes``:
``"sim:0"``, ``"cuda:1"``, ``"host"``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import overload

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.sizes import Size, bytes_of
from torch import Tensor, nn

_experiment_numbers = itertools.count()


def get_device() -> torch.device:
    """The managed device: for code that asks once for the best device there is."""
    return torch.device(DEVICE)


def managed_tensors(x: Tensor | nn.Module) -> dict[str, Tensor]:
    """The tensors that a verb on ``x`` means, by name (``""`` for a tensor). Tied ones appear once.

    Raises:
        TypeError: ``x`` is neither a tensor nor a module.
        ValueError: a tensor is not on the managed device.

    """
    if isinstance(x, nn.Module):
        tensors = dict(itertools.chain(x.named_parameters(), x.named_buffers()))
    elif isinstance(x, Tensor):
        tensors = {"": x}
    else:
        raise TypeError(f"expected a tensor or a module, got {type(x).__name__}")
    with torch._C.DisableTorchFunction():  # no mode of the user's sees the verbs
        for name, tensor in tensors.items():
            if not _C.is_managed(tensor.device):
                what = f"{name!r} of the module" if name else "the tensor"
                raise ValueError(
                    f"{what} is on {tensor.device}, not managed: move it with .to('{DEVICE}') first"
                )
    return tensors


@overload
def where(x: Tensor) -> list[str]: ...
@overload
def where(x: nn.Module) -> dict[str, list[str]]: ...
def where(x: Tensor | nn.Module) -> list[str] | dict[str, list[str]]:
    """The nodes that hold valid bytes of ``x``, the owner first; empty if it was never written.

    Returns:
        A list of node names for a tensor; for a module a dict from the parameter's or buffer's name to such a
        list.

    """
    places = {name: _C.where(tensor) for name, tensor in managed_tensors(x).items()}
    return places if isinstance(x, nn.Module) else places[""]


def pin(x: Tensor | nn.Module, node: str | None = None) -> None:
    """Brings ``x`` to ``node`` (default: its present node) and keeps it there until as many ``unpin`` calls.

    No pin is needed to train. If a module fits only in part, none of its tensors stays pinned.

    Raises:
        ValueError: there is no such node.
        torch.OutOfMemoryError: the node has no free space for it beside the pinned blocks.

    """
    with ExitStack() as undo:
        for tensor in managed_tensors(x).values():
            _C.pin(tensor, node)
            undo.callback(_C.unpin, tensor)
        undo.pop_all()


def unpin(x: Tensor | nn.Module) -> None:
    """Takes back one ``pin`` of ``x``; does nothing if it is not pinned."""
    for tensor in managed_tensors(x).values():
        _C.unpin(tensor)


def prefetch(x: Tensor | nn.Module, node: str) -> None:
    """Starts the copies of ``x`` to ``node`` and returns before they are done.

    Raises:
        ValueError: there is no such node.

    """
    for tensor in managed_tensors(x).values():
        _C.prefetch(tensor, node)


def evict(x: Tensor | nn.Module) -> None:
    """Moves ``x`` from every accelerator to the host; the next operator on it brings it back.

    Raises:
        ValueError: it is pinned.
        RuntimeError: an operator of another thread uses it.

    """
    for tensor in managed_tensors(x).values():
        _C.evict(tensor)


@overload
def resident(
    x: Tensor, node: str | None = None, *, write: bool = False
) -> AbstractContextManager[Tensor]: ...
@overload
def resident(
    x: nn.Module, node: str | None = None, *, write: bool = False
) -> AbstractContextManager[dict[str, Tensor]]: ...
def resident(
    x: Tensor | nn.Module, node: str | None = None, *, write: bool = False
) -> AbstractContextManager[Tensor] | AbstractContextManager[dict[str, Tensor]]:
    """A context with the real tensor behind ``x``, for a custom kernel; until it ends, that stays in place.

    The real tensor has the shape, strides and dtype of ``x``, is on the node's own device (``cpu``,
    ``cuda:1``), and must not be kept after the context. The variable of ``with ... as real`` outlives it:
    ``del real``, else an operator that writes ``x`` at another node fails until it is gone. ``write=True``
    says that the kernel writes it; without, writes are lost.

    Returns:
        A context manager that gives the real tensor; for a module a dict from names to real tensors.

    Raises:
        ValueError: there is no such node.
        torch.OutOfMemoryError: the node has no free space.

    """
    tensors = managed_tensors(x)
    made = _ModuleResident if isinstance(x, nn.Module) else _Resident
    return made(tensors, node, write)


class _ModuleResident(AbstractContextManager[dict[str, Tensor]]):
    """No generator: an exception of a signal's handler that met one while it closes would be lost."""

    def __init__(self, tensors: dict[str, Tensor], node: str | None, write: bool) -> None:
        self._wanted, self._node, self._write = tensors, node, write
        self._held: dict[str, _C.Resident] = {}  # each ends when it dies, if it was not ended before

    def __enter__(self) -> dict[str, Tensor]:
        if self._held:
            raise RuntimeError("this context of innkeeper.resident() is entered already: make another")
        held = {name: _C.Resident(x, self._node, self._write) for name, x in self._wanted.items()}
        self._held = held
        return {name: each.tensor() for name, each in held.items()}

    def __exit__(self, *error: object) -> None:
        held, self._held = self._held, {}
        for each in held.values():
            each.leave()


class _Resident(AbstractContextManager[Tensor]):
    def __init__(self, tensors: dict[str, Tensor], node: str | None, write: bool) -> None:
        self._all = _ModuleResident(tensors, node, write)

    def __enter__(self) -> Tensor:
        return self._all.__enter__()[""]

    def __exit__(self, *error: object) -> None:
        self._all.__exit__()


def computing_nodes() -> list[str]:
    """Names of the nodes that compute, in their order."""
    return [node.name for node in _C.nodes() if node.computes]


def node_of(device: object) -> str | None:
    """The node that a program means by a device: by ``1`` and by ``"cuda:1"`` the second that computes.

    None where no node is named: by None, ``"cuda"``, ``"managed"``. A node's own name is itself, or None
    where it computes nothing, since tensors go there by themselves.

    Raises:
        ValueError: there is no such node.

    """
    if device is None:
        return None
    nodes = computing_nodes()
    if isinstance(device, str) and device in (node.name for node in _C.nodes()):
        return device if device in nodes else None
    named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)  # type: ignore
    if named.index is None or (_C.is_managed(named) and not _C.has_device_per_node()):
        return None
    if not (_C.is_managed(named) or named.type == "cuda") or named.index >= len(nodes):
        raise ValueError(f"{device!r} is none of the {len(nodes)} nodes that compute: {', '.join(nodes)}")
    return nodes[named.index]


@overload
def brought(x: Tensor, device: object) -> Tensor: ...
@overload
def brought(x: nn.Module, device: object) -> nn.Module: ...
def brought(x: Tensor | nn.Module, device: object) -> Tensor | nn.Module:
    """``x`` on the managed device: only at ``node_of(device)``, or on its present node if that is None.

    Raises:
        ValueError: there is no such node.
        torch.OutOfMemoryError: one of the tensors is larger than the memory there that is not pinned.

    """
    node = node_of(device)
    if node is None:
        return x if isinstance(x, Tensor) and _C.is_managed(x.device) else x.to(DEVICE)
    with on(node):
        there = x.to(_device_of(node))
    for tensor in managed_tensors(there).values():
        with resident(tensor, node, write=True):  # write access leaves one holder
            pass
    return there


def _device_of(node: str) -> torch.device:
    if not _C.has_device_per_node():
        return torch.device(DEVICE)
    return torch.device(DEVICE, computing_nodes().index(node))


@contextmanager
def on(node: str) -> Iterator[str]:
    """Places by hand: inside the context, tensors without operands are made on ``node``, for this thread.

    Operators still run where most of their operands are, so results computed from such tensors stay there
    too.

    Raises:
        ValueError: there is no such node, or it does not compute.

    """
    previous = _C.set_home(node)
    try:
        yield node
    finally:
        _C.set_home(previous)


@contextmanager
def experiment(name: str | None = None, memory: Size | None = None) -> Iterator[str]:
    """One of many experiments: a preferred node (the least loaded) and a random stream, for this thread.

    ``torch.manual_seed`` inside seeds its stream, and its random numbers on the device do not depend on other
    experiments. Draws on the CPU do, as in any threads: PyTorch has one generator there. Seed a generator of
    your own for them (``torch.Generator().manual_seed(0)``), or build the model on the device.

    Args:
        name: for logs; by default a number is given.
        memory: bytes, or ``"8GiB"``, that it expects to need, so that experiments spread by size.

    Yields:
        The experiment's name.

    """
    name = f"experiment-{next(_experiment_numbers)}" if name is None else name
    token = _C.enter_experiment(name, None if memory is None else bytes_of(memory, "memory"))
    try:
        yield name
    finally:
        _C.leave_experiment(token)
