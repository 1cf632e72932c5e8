"""What ``innkeeper.stats()`` returns: frozen dataclasses that are also read-only mappings.

``stats().nodes["host"].peak`` and ``stats()["nodes"]["host"]["peak"]`` are the same number. The mappings are
dicts whose writing methods are refused, so ``json.dumps`` and ``dict(...)`` take them; ``as_dict()`` gives
plain dicts that may be changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

Value = TypeVar("Value")


class ReadOnly(dict[str, Value]):
    """A dict that refuses each change with TypeError."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is read-only: dict(...) and as_dict() give one to change")

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies the object by the values that it is made from."""
        return type(self), (dict(self),)

    def as_dict(self) -> dict[str, Any]:
        """Plain dicts with the same keys, all the way down."""
        return {key: value.as_dict() if isinstance(value, ReadOnly) else value for key, value in self.items()}


class _Record(ReadOnly[Any]):
    """Attributes by the fields of a dataclass, and the same as items."""

    former: ClassVar[dict[str, str]] = {}
    """Former name of a key to its present name."""

    def __post_init__(self) -> None:
        fields = type(self).__dict__["__dataclass_fields__"]
        dict.update(self, {name: getattr(self, name) for name in fields if name in self.__dict__})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self.values())

    def __missing__(self, key: str) -> NoReturn:
        """Raises KeyError, with the present name where the key was renamed."""
        raise KeyError(f"{key!r} is called {self.former[key]!r} now" if key in self.former else key)

    def __getattr__(self, name: str) -> NoReturn:
        if name in self.former:
            raise AttributeError(f"{name} is called {self.former[name]} now")
        raise AttributeError(f"{type(self).__name__} has no {name}: it has {', '.join(self)}")


@dataclasses.dataclass(frozen=True, eq=False)
class NodeStats(_Record):
    """One node, now and since the last ``manager().reset_stats()``."""

    budget: int
    """Bytes that the node may hold."""
    resident: int
    """Bytes in use now: tensors' replicas, and memory of kernels and others."""
    peak: int
    """The most bytes that were in use at once."""
    replicas: int
    """Bytes of tensors' replicas now."""
    pinned: int
    """Bytes that cannot be evicted now."""
    recount: int
    """``resident`` as the node's allocator counts it, bytes: equal, or the engine has a fault."""
    evictions: int
    """Number of replicas that left to make space."""
    ops: int
    """Number of operators that ran at the node."""


@dataclasses.dataclass(frozen=True, eq=False)
class PeriodStats(_Record):
    """The last period that was followed to its end: the sequence of operators that the program repeats."""

    operators: int
    """Number of operators."""
    bytes_planned: int
    """Bytes that the plan fetches in one period."""
    bytes_short: int
    """Bytes of budget more with which nothing planned would move."""
    bytes_fetched: int
    """Bytes that were fetched in the period."""
    seconds: float | None
    """Seconds that the period took; None where a GPU does not tell."""
    kernel_seconds: float | None
    """Seconds of its kernels alone, without waiting for copies; None where a GPU does not tell."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stats(_Record):
    """The counters since the last ``manager().reset_stats()``, and the nodes' memory now."""

    former: ClassVar[dict[str, str]] = {"round": "period", "planned_rounds": "planned_periods"}

    ops: int
    """Number of operators on managed tensors."""
    fetches: int
    """Number of copies that brought a block to a node that needs it."""
    recomputed: int
    """Number of blocks whose operator ran again in place of a copy each way."""
    other_bits: int
    """Number of kinds of operators whose second run gave other bits: their results are copied instead."""
    evictions: int
    """Number of replicas that left a node to make space."""
    bytes_fetched: int
    """Bytes that were copied to nodes that need them."""
    bytes_written_back: int
    """Bytes that were copied away, since the only replica left its node."""
    bytes_between: int
    """Bytes that crossed links between accelerators."""
    bytes_from_disk: int
    """Bytes of ``bytes_fetched`` that came from a disk."""
    bytes_to_disk: int
    """Bytes of ``bytes_written_back`` that went to a disk."""
    moved_from_cpu: int
    """Bytes of CPU tensors that operators moved, since they stood beside managed ones."""
    escaped: int
    """Number of replicas that code outside of the engine holds now."""
    planned_periods: int
    """Number of periods that followed a plan from end to end."""
    divergences: int
    """Number of periods in which the program left its plan."""
    period: PeriodStats | None
    """The last period that was followed to its end; None until one was."""
    bytes_bound: int | None
    """The least bytes that any plan would fetch in that period; None without one."""
    time_bound: float | None
    """The least seconds that any plan would take for it; None without one, or where a GPU does not tell."""
    simulated_seconds: float
    """The simulators' clock, in seconds; 0.0 where no GPU is simulated."""
    nodes: ReadOnly[NodeStats]
    """The nodes by name, ``"sim:0"``, ``"host"``, in their order."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Stats:
        """From plain dicts, as the extension gives them."""
        period = None if found["period"] is None else PeriodStats(**found["period"])
        nodes = ReadOnly({name: NodeStats(**node) for name, node in found["nodes"].items()})
        return cls(**{**found, "period": period, "nodes": nodes})
