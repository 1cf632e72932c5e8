"""The one manager of the process: nodes, budgets, and the settings that place things."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from torch.optim import Optimizer

import torch
from innkeeper import _C, device_copies, placement, report
from innkeeper import mixed as mixed_operands
from innkeeper.compat.settings import PredecessorSettings
from innkeeper.nodes import Node, as_text, named
from innkeeper.sizes import Size, bytes_of
from torch import Tensor, nn

_making = threading.Lock()


def configure(
    nodes: str | Node | Sequence[str | Node] = "auto",
    *,
    soft_placement: bool | None = None,
    growth: bool | None = None,
    planning: bool | None = None,
    recompute: bool | None = None,
    devices: str | None = None,
    mixed: str | None = None,
) -> None:
    """Sets the nodes before the device is used, instead of the environment variable ``INNKEEPER_NODES``.

    A refused call changes nothing. Not to be called while other threads use the device.

    Args:
        nodes: as in ``"sim:2x64MiB,host:1GiB,disk:PATH:8GiB"``; sizes are ``B`` to ``TiB``.
            ``auto`` is the visible GPUs, then the host. Or ``innkeeper.Node`` objects, one or a list.
        soft_placement: sets ``DeviceManager.soft_placement`` too. None: leaves it unchanged.
        growth: whether the GPUs' memory is taken as it is needed, or each GPU's whole budget at once, so
            that no other process gets it. None: unchanged; initially ``INNKEEPER_GROWTH``, else True.
        planning: whether the engine plans movement for a program that repeats its steps and does not fit, or
            moves blocks on demand. None: unchanged; initially ``INNKEEPER_PLANNING``, else True.
        recompute: whether a plan may discard results of cheap operators and run these operators again before
            the next use, instead of a copy out and back; to the same bits. None: unchanged; initially
            ``INNKEEPER_RECOMPUTE``, else True.
        devices: ``"each"`` gives each node that computes a device index, ``managed:0``, ``managed:1`` and so
            on, with CUDA's rules, as programs made for CUDA have under ``run --managed``. It is for the rest
            of the process. ``"one"``: one device for all nodes. None: unchanged; initially one.
        mixed: the treatment of CPU tensors beside managed ones. ``"move"``: the operator moves them to the
            device, as ``.to("managed")`` would. ``"refuse"``: CUDA's error. None: unchanged; initially
            ``INNKEEPER_MIXED``, else ``"move"``, and ``"refuse"`` under ``run --managed``.

    Raises:
        ValueError: an unknown kind of node, a budget of 0, a path that does not exist, more bytes than the
            machine has; or managed tensors or exposed memory are alive, so that it is too late.

    """
    wanted = as_text(nodes)
    if devices not in (None, "one", "each") or (devices == "one" and _C.has_device_per_node()):
        fixed = ', and "each" stays for the rest of the process' if _C.has_device_per_node() else ""
        raise ValueError(f'devices is "one" or "each"{fixed}; got {devices!r}')
    if mixed not in (None, "move", "refuse"):
        raise ValueError(f'mixed is "move" or "refuse"; got {mixed!r}')
    switches = {
        "soft_placement": soft_placement,
        "growth": growth,
        "planning": planning,
        "recompute": recompute,
    }
    for name, value in switches.items():
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name} is a bool, got {value!r}")
    before = _C.growth()
    if growth is not None:
        _C.set_growth(growth)  # the machine is made with it
    try:
        _C.configure(wanted)
    except BaseException:
        _C.set_growth(before)
        raise
    if devices == "each" and not _C.has_device_per_node():
        _C.use_device_per_node(0)  # The runtime has started, so it knows the visible GPUs.
        device_copies.install()
    if mixed is not None:
        mixed_operands.set_moves(mixed == "move")
    if soft_placement is not None:
        _C.set_soft_placement(soft_placement)
    if planning is not None:
        _C.set_planning(planning)
    if recompute is not None:
        _C.set_recompute(recompute)


class DeviceManager(PredecessorSettings):
    """The nodes and their settings. There is one manager; ``DeviceManager()`` and ``manager()`` both give it.

    Thread safety: all members. Settings are for the whole process.
    """

    _reserve: float = 0.0
    _log_moves: bool = False
    _instance: ClassVar[DeviceManager | None] = None

    def __new__(cls) -> DeviceManager:
        """Returns the one manager."""
        with _making:
            cls._instance = cls._instance or super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        """The nodes and their budgets, where the device is in use: to be shown starts nothing."""
        if not _C.started():
            return "<innkeeper.DeviceManager: not started>"
        sizes = (f"{name} {report.format_bytes(node.budget)}" for name, node in self.nodes.items())
        return f"<innkeeper.DeviceManager: {', '.join(sizes)}>"

    # Nodes and budgets.

    @property
    def nodes(self) -> dict[str, _C.NodeInfo]:
        """The nodes by name, in order: ``kind, budget, capacity`` (bytes) and whether one ``computes``."""
        return {node.name: node for node in _C.nodes()}

    def budget(self, node: str) -> int:
        """How many bytes of ``node`` may be used. ValueError if there is no such node."""
        return named(self.nodes, node).budget

    def set_budget(self, node: str, nbytes: Size) -> None:
        """Limits ``node`` to ``nbytes`` bytes, or ``"64MiB"``; bytes beyond them are evicted.

        Raises:
            ValueError: no such node, no positive number, or more than its capacity.
            torch.OutOfMemoryError: more than that is pinned.

        """
        _C.set_budget(node, bytes_of(nbytes, "nbytes"))

    @property
    def reserve(self) -> float:
        """The fraction of every accelerator that is kept free, from 0 to less than 1. Sets their budgets."""
        return self._reserve

    @reserve.setter
    def reserve(self, fraction: float) -> None:
        if not 0 <= fraction < 1:
            raise ValueError(f"reserve is a fraction of a node, 0 or more and less than 1: got {fraction}")
        for node in _C.nodes():
            if node.kind not in ("host", "disk"):
                _C.set_budget(node.name, int(node.capacity * (1 - fraction)))
        self._reserve = fraction

    @property
    def soft_placement(self) -> bool:
        """Whether the host runs operators that a node cannot run: a setting of the process.

        On, the host runs an operator that is too large for its node, or that has no kernel there, and a
        warning names the operator, once; ``find_device`` gives the host when no other node has free space.
        Off, both are errors. Initially ``INNKEEPER_SOFT_PLACEMENT``, else on.
        """
        return _C.soft_placement()

    @soft_placement.setter
    def soft_placement(self, soft: bool) -> None:
        _C.set_soft_placement(soft)

    @property
    def planning(self) -> bool:
        """Whether movement is planned where a program repeats its steps; see ``configure``."""
        return _C.planning()

    @planning.setter
    def planning(self, on: bool) -> None:
        _C.set_planning(on)

    @property
    def recompute(self) -> bool:
        """Whether a plan may recompute results in place of copying them; see ``configure``."""
        return _C.recompute()

    @recompute.setter
    def recompute(self, on: bool) -> None:
        _C.set_recompute(on)

    @property
    def growth(self) -> bool:
        """Whether GPUs' memory is taken as it is needed; ``configure`` sets it, before the first use."""
        return _C.growth()

    @property
    def policy(self) -> str:
        """The order in which replicas are evicted.

        ``"reuse-distance"``: the least recently used ones. Among replicas that came back before,
        the one whose next use is expected last is evicted first.
        """
        return "reuse-distance"

    # Placement.

    def size_estimate(self, *objects: Tensor | nn.Module) -> int:
        """Bytes that the objects need on a node: each tensor, and as much again if it needs a gradient."""
        return sum(map(self.size_heuristic, sizes_of(objects)))

    def find_device(self, nbytes: Size, *, disperse: bool = False) -> str:
        """The node that best fits ``nbytes`` bytes more; the name can be given to ``innkeeper.on``.

        A node has free space if the bytes fit beside its pinned blocks, since all others can be evicted. If
        no node has, waits ``wait_time`` seconds and looks again, ``retry_limit`` times; then gives the host,
        if ``soft_placement``.

        Args:
            nbytes: number of bytes, for instance ``size_estimate(model)``, or ``"64MiB"``.
            disperse: spread over the nodes by the number of threads that prefer each, instead of by free
                bytes.

        Raises:
            torch.OutOfMemoryError: no node has free space, and ``soft_placement`` is off.

        """
        nbytes = bytes_of(nbytes, "nbytes")
        for attempt in range(self.retry_limit + 1):
            if attempt:
                time.sleep(self.wait_time)
            best = _C.find_device(nbytes, disperse)
            now = _C.stats()["nodes"]
            unpinned = {
                node.name: now[node.name]["budget"] - now[node.name]["pinned"]
                for node in _C.nodes()
                if node.computes
            }
            for name in (best, max(unpinned, key=unpinned.__getitem__)):
                if unpinned[name] >= nbytes:
                    return name
            self.log(f"no room for {nbytes} bytes: {unpinned} are not pinned")
        if self.soft_placement and "host" in self.nodes:
            return "host"
        raise torch.OutOfMemoryError(
            f"no node has room for {nbytes} bytes; not pinned are {unpinned} "
            f"(looked {self.retry_limit + 1} times,"
            f" every {self.wait_time} s): unpin, raise a budget with set_budget or turn soft_placement on"
        )

    def send(self, tensors: Iterable[Tensor | nn.Module], node: str | None = None) -> str:
        """Starts to bring managed tensors to one node, by default ``find_device``'s; returns its name."""
        found = list(tensors)
        node = self.find_device(self.size_estimate(*found)) if node is None else node
        for x in found:
            placement.prefetch(x, node)
        return node

    # Statistics.

    def stats(self) -> report.Stats:
        """See ``innkeeper.stats``."""
        return report.stats()

    def summary(self, *owners: nn.Module | Optimizer) -> str:
        """See ``innkeeper.summary``."""
        return report.summary(*owners)

    def reset_stats(self) -> None:
        """Sets the counters to zero, and the peaks to the bytes in use now."""
        _C.reset_stats()

    def check_invariants(self) -> None:
        """Verifies the engine's books; RuntimeError names the first invariant that does not hold.

        To be called while no other thread runs an operator.
        """
        broken = _C.check_invariants()
        if broken:
            raise RuntimeError(broken)

    def start_samples(self, every_ops: int) -> None:
        """Starts to note the bytes on each node, once in ``every_ops`` operators (1 or more: ValueError)."""
        _C.sample_start(every_ops)

    def stop_samples(self) -> dict[str, Any]:
        """Returns the samples since ``start_samples``.

        ``nodes`` are names, ``op`` each row's operator ordinal, ``resident`` ([row][node]) bytes; so are
        the running totals ``bytes_fetched`` and ``bytes_written_back`` ([row]).
        """
        taken = _C.sample_stop()
        return {
            key: getattr(taken, key)
            for key in ("nodes", "op", "resident", "bytes_fetched", "bytes_written_back")
        }

    # Logging.

    @property
    def log_moves(self) -> bool:
        """Whether placements and moves are logged, one line each, to standard error."""
        return self._log_moves

    @log_moves.setter
    def log_moves(self, on: bool) -> None:
        _C.log_moves(on)
        self._log_moves = on


def tensors_of(x: Tensor | nn.Module) -> list[Tensor]:
    """The tensor itself, or a module's parameters and buffers."""
    return [*x.parameters(), *x.buffers()] if isinstance(x, nn.Module) else [x]


def sizes_of(objects: Iterable[Tensor | nn.Module]) -> list[int]:
    """The bytes of each tensor of the objects, twice if it needs a gradient."""
    tensors = [tensor for x in objects for tensor in tensors_of(x)]
    return [x.numel() * x.element_size() * (2 if x.requires_grad else 1) for x in tensors]


def manager() -> DeviceManager:
    """The process's one ``DeviceManager``."""
    return DeviceManager()
