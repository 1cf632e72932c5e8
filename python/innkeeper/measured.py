"""The memory of one node, and the counters of a ``with`` block."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from innkeeper import _C
from innkeeper.nodes import named
from innkeeper.report import stats
from innkeeper.stats_types import NodeStats, ReadOnly, Stats

_NOW = {"budget", "resident", "peak", "replicas", "pinned", "recount"}  # A node's levels.
_LAST = {"period", "bytes_bound", "time_bound", "nodes"}  # Values of the last period, and counters by node.


def memory_allocated(node: str | None = None) -> int:
    """Bytes in use on a node now: tensors that are there, and kernels' own memory.

    Args:
        node: ``"sim:0"``, ``"host"``. None: all nodes that compute.

    Returns:
        Bytes; 0 before the device is used, which this does not begin.

    Raises:
        ValueError: there is no such node.

    """
    if not _C.started():
        return 0
    now = _C.stats()["nodes"]
    if node is None:
        return sum(now[each.name]["resident"] for each in _C.nodes() if each.computes)
    resident: int = named(now, node)["resident"]
    return resident


class statistics:
    """The counters of the ``with`` block, by all threads. Nothing is reset.

    ::

        with innkeeper.statistics() as s:
            train(model)
        print(s.ops, s["bytes_fetched"], s.nodes["host"].evictions)

    Attributes and keys are those of ``Stats``. Counts, bytes that moved and simulated seconds are the
    block's, up to now while it runs. A node's ``resident`` and other levels are those at the block's end, and
    ``peak`` is since the last ``manager().reset_stats()``. ``period`` and its bounds are of the last period,
    None where the block ended none. Blocks may stand within each other.
    """

    _begin: Stats | None = None
    _end: Stats | None = None

    def __enter__(self) -> statistics:
        self._begin, self._end = stats(), None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end = stats()

    @property
    def stats(self) -> Stats:
        """The block's ``Stats``. RuntimeError before it has begun."""
        if self._begin is None:
            raise RuntimeError("innkeeper.statistics() counts inside of a with block, which has not begun")
        return _difference(self._begin, self._end or stats())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.stats, name)

    def __getitem__(self, key: str) -> Any:
        return self.stats[key]

    def __repr__(self) -> str:
        return "<innkeeper.statistics: not begun>" if self._begin is None else repr(self.stats)


def _difference(begin: Stats, end: Stats) -> Stats:
    values = {key: value if key in _LAST else value - begin[key] for key, value in end.items()}
    if values["planned_periods"] + values["divergences"] == 0 and end.period == begin.period:
        values |= {"period": None, "bytes_bound": None, "time_bound": None}
    values["nodes"] = ReadOnly({name: _node(begin.nodes.get(name), node) for name, node in end.nodes.items()})
    return Stats(**values)


def _node(begin: NodeStats | None, end: NodeStats) -> NodeStats:
    was: dict[str, Any] = {} if begin is None else begin
    return NodeStats(**{key: value if key in _NOW else value - was.get(key, 0) for key, value in end.items()})
