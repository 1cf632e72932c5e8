"""Nodes as objects, for ``innkeeper.configure``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from innkeeper.sizes import Size, bytes_of

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Node:
    """One node, or several alike, of ``innkeeper.configure``; ``str(node)`` is its item of INNKEEPER_NODES.

    ``Node("sim", "64MiB", count=2)`` is ``sim:2x64MiB``, ``Node("cuda", index=1)`` is ``cuda:1``, and
    ``Node("disk", "8GiB", path="/tmp")`` is ``disk:/tmp:8GiB``.
    """

    kind: str
    """``"sim"``, ``"cuda"``, ``"host"``, ``"disk"`` or ``"auto"``."""
    budget: Size | None = None
    """Of each, in bytes or as ``"64MiB"``. None: what is free; a simulated GPU and a disk need one."""
    count: int = 1
    """How many simulated GPUs."""
    index: int | None = None
    """Which GPU of kind ``"cuda"``; None: all that are visible."""
    path: str | Path | None = None
    """The directory of a disk's file."""

    def __post_init__(self) -> None:
        if self.count != 1 and self.kind in ("cuda", "host", "disk", "auto"):
            raise ValueError(f"count is for simulated GPUs, not for {self.kind!r}")
        if self.index is not None and self.kind in ("sim", "host", "disk", "auto"):
            raise ValueError(f"index is for GPUs of kind 'cuda', not for {self.kind!r}")
        if (self.path is not None) != (self.kind == "disk"):
            raise ValueError(f"path is for kind 'disk', which needs one; got {self.path!r} for {self.kind!r}")

    def __str__(self) -> str:
        words = [self.kind]
        words += [str(each) for each in (self.index, self.path) if each is not None]
        if self.budget is not None:
            size = f"{bytes_of(self.budget, 'budget')}B"
            words.append(f"{self.count}x{size}" if self.kind == "sim" or self.count != 1 else size)
        return ":".join(words)


def named(nodes: Mapping[str, Entry], name: str) -> Entry:
    """The entry of the node of this name. ValueError if there is none."""
    if name not in nodes:
        raise ValueError(f"there is no node {name!r}; the nodes are {', '.join(nodes)}")
    return nodes[name]


def as_text(nodes: str | Node | Sequence[str | Node]) -> str:
    """The nodes as INNKEEPER_NODES has them.

    Raises:
        TypeError: it is neither a str, a Node nor a sequence of these.

    """
    listed = [nodes] if isinstance(nodes, str | Node) else nodes
    if not isinstance(listed, Sequence) or not all(isinstance(node, str | Node) for node in listed):
        raise TypeError(
            "nodes is a str such as 'sim:2x64MiB,host:1GiB', an innkeeper.Node or a list of these, got "
            f"{type(nodes).__name__}"
        )
    return ",".join(map(str, listed))
