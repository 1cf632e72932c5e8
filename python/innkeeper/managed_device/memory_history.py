"""Which operator made which memory, for PyTorch's viewer (``torch.cuda._memory_viz``).

``torch.managed.memory._record_memory_history()``, ``_snapshot()`` and ``_dump_snapshot()`` have
torch.cuda's names and its snapshot's form. The snapshot shows tensors' memory on all nodes: births and deaths
of the device's blocks, in order. Addresses are ordinals of their own, since blocks move; times count events;
a frame names the operator, no line of Python. It does not show kernels' own memory.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.managed_device.device import index_of
from innkeeper.recording import record

__all__: list[str] = []

_GRANULE = 512  # addresses are multiples of this
_SMALL = 1 << 20  # PyTorch's border between its two kinds of segment
_UNNAMED = "before the record"


class _History:
    """The events recorded so far, and the state of the recording."""

    path = Path("torch.managed.memory")  # named in the error of ``innkeeper.record`` while this records

    def __init__(self) -> None:
        self.entries: deque[dict[str, Any]] = deque()
        self.alive: dict[int, dict[str, Any]] = {}
        self._first = 0
        self._next_address = _GRANULE
        self._clock = 0

    def begin(self, max_entries: int | None) -> None:
        """Begins to record, perhaps again; deaths in between are unknown."""
        self.entries = deque(self.entries, maxlen=max_entries)
        self.alive = {}
        # A factory's memory is first seen when something fills it: newer blocks have higher numbers.
        self._first = _C.block_number(torch.empty(1, device=DEVICE))

    def read(self, text: str) -> None:
        """Reads the text that ``_C.trace_stop()`` returned."""
        for line in text.splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "O":
                self._operation(rest)
            elif kind == "F" and (gone := self.alive.pop(int(rest), None)) is not None:
                self._free(gone)

    def _operation(self, line: str) -> None:
        name, *accesses = line.split(" ")
        for block, size, kind in _accesses(accesses):
            known = self.alive.get(block)
            if known is not None and known["size"] == size:
                continue
            if known is not None:  # an operator gave it another size
                self._free(known)
            made = kind in ("o", "p") or known is not None or block >= self._first
            self.alive[block] = self._add(
                {
                    "action": "alloc",
                    "addr": self._take(size),
                    "size": size,
                    "stream": 0,
                    "device": 0,
                    "frames": _frames(name if made else _UNNAMED),
                }
            )

    def _free(self, made: dict[str, Any]) -> None:
        for action in ("free_requested", "free_completed"):
            self._add(made | {"action": action})

    def _take(self, size: int) -> int:
        address = self._next_address
        self._next_address += _GRANULE * max(1, -(-size // _GRANULE))
        return address

    def _add(self, entry: dict[str, Any]) -> dict[str, Any]:
        self._clock += 1
        entry["time_us"] = self._clock
        self.entries.append(entry)
        return entry


_history: _History | None = None


def _accesses(words: list[str]) -> Iterator[tuple[int, int, str]]:
    for word in words:
        block, colon, rest = word.partition(":")
        if colon:  # a word without a colon is the operator's cost
            yield int(block), int(rest[:-1]), rest[-1]


def _frames(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "filename": "innkeeper", "line": 0}]


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int | None = None,
    device: Any = None,
    clear_history: bool = False,
    **others: Any,
) -> None:
    """Begins to record births and deaths of tensors' memory, or with ``enabled=None`` ends it.

    While it records, ``innkeeper.record`` is refused, and the other way round.

    Args:
        enabled: ``"all"`` or ``"state"`` to begin, None to end; both record the same.
        context: torch.cuda's argument; operators are named for all its values.
        stacks: the same.
        max_entries: number of last events to show; None for all. Until the next snapshot all events are kept,
            some 90 bytes an operator, up to the 4,194,304 lines of a record.
        device: the managed one.
        clear_history: forgets the events recorded before.
        others: torch.cuda's further arguments, which have no effect.

    Raises:
        RuntimeError: ``innkeeper.record`` is writing a record.
        ValueError: ``enabled`` or ``max_entries`` makes no sense.

    """
    global _history
    index_of(device)
    if enabled not in (None, "state", "all"):
        raise ValueError(f'enabled={enabled!r}: expected None, "state" or "all"')
    if max_entries is not None and max_entries < 0:
        raise ValueError(f"max_entries={max_entries}: expected 0 or more, or None for all")
    with record._lock:
        if enabled is None:
            if record._active is _history is not None:
                _history.read(_C.trace_stop())
                record._active = None
            return
        record._refuse_others(_history)
        if record._active is not None:
            _history.read(_C.trace_stop())  # type: ignore[union-attr]
        if _history is None or clear_history:
            _history = _History()
        _history.begin(max_entries)
        record._active = _history  # type: ignore[assignment]
        _C.trace_start()


def _snapshot(device: Any = None) -> dict[str, Any]:
    """Live blocks that operators have touched since recording began, a segment each, and all events so far.

    Recording goes on. Times are ordinals of events; all nodes are one device.

    Raises:
        RuntimeError: nothing was recorded.

    """
    index_of(device)
    with record._lock:
        if _history is None:
            raise RuntimeError("call torch.managed.memory._record_memory_history() before what is to be seen")
        if record._active is _history:
            _history.read(_C.trace_stop())
            _C.trace_start()
        segments = [_segment(entry) for entry in _history.alive.values()]
        return {"segments": segments, "device_traces": [list(map(dict, _history.entries))]}


def _segment(entry: dict[str, Any]) -> dict[str, Any]:
    size = entry["size"]
    block = {
        "size": size,
        "requested_size": size,
        "address": entry["addr"],
        "state": "active_allocated",
        "frames": entry["frames"],
    }
    return {
        "device": 0,
        "address": entry["addr"],
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "stream": 0,
        "segment_type": "small" if size <= _SMALL else "large",
        "blocks": [block],
    }


def _dump_snapshot(filename: str | Path = "dump_snapshot.pickle") -> None:
    """Writes ``_snapshot()`` for https://pytorch.org/memory_viz or ``python -m torch.cuda._memory_viz``."""
    with Path(filename).open("wb") as file:
        pickle.dump(_snapshot(), file)
