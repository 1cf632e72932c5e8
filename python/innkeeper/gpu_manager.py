"""``GPUManager``, as users of tf_gpu_manager know it, over ``auto_choice``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from innkeeper.choice import Choice, auto_choice
from innkeeper.frameworks import tensorflow_gpu
from innkeeper.gpu_rows import Row, rows_of
from innkeeper.gpus import GPU, gpus
from innkeeper.leases import mode_name
from innkeeper.sizes import Size


class GPUManager:
    """Chooses the freest GPU at each call.

    GPUs that no other program on the machine has chosen or leased come first, then those that this program
    has not chosen::

        gm = innkeeper.GPUManager()
        with gm.auto_choice():  # or mode=1, mode=2, mode="utilization"
            ...

    ====================  =====================================================================
    mode                  sorts by
    ====================  =====================================================================
    0, ``"free"``         largest free memory
    1, ``"ratio"``        highest free part of the memory
    2, ``"power"``        least power, of its limit
    3, ``"utilization"``  least utilization
    a name ``"XXX"``      the method ``_sort_by_XXX(self, gpus)`` of a subclass: rows, best first
    ====================  =====================================================================

    A GPU that such a method leaves out is never chosen. The method may use ``_sort_by_memory``,
    ``_sort_by_power`` and ``_sort_by_custom``.

    With TensorFlow ``gm.sess`` is a session of its version 1's kind that places softly and takes memory as it
    needs it.

    Args:
        first: ``qargs`` if it is a list or a tuple, else ``session``: either may be given by its place.
        qargs: columns of ``nvidia-smi --query-gpu`` that ``gpus`` has besides its own.
        session: your session instead, or one on its graph if it lacks one of the two settings; or a
            ``ConfigProto``, from which one is made.
        initSession: ``False``: there is no ``gm.sess``. By default there is one if TensorFlow was imported.

    Raises:
        TypeError: ``session`` is neither, or a column is no text.

    """

    def __init__(
        self, first: Any = None, *, qargs: Sequence[str] = (), session: Any = None, initSession: bool = True
    ) -> None:
        if isinstance(first, (list, tuple)):
            qargs = (*first, *qargs)
        elif first is not None:
            session = first
        wrong = next((name for name in qargs if not isinstance(name, str) or not name), None)
        if isinstance(qargs, str) or wrong is not None:
            raise TypeError(f"qargs is a list of columns such as ['fan.speed'], got {wrong or qargs!r}")
        self._columns = tuple(dict.fromkeys(qargs))
        self._with_session = initSession
        self._session = None
        if session is not None:
            self._session = _configured(session)
        elif initSession and "tensorflow" in sys.modules:
            self._session = tensorflow_gpu.new_session()

    @property
    def sess(self) -> Any:
        """The session; made at the first use if TensorFlow was imported after the manager was made.

        Raises:
            AttributeError: it was refused by ``initSession=False``.

        """
        if self._session is None:
            if not self._with_session:
                raise AttributeError("this GPUManager has no session: it was made with initSession=False")
            self._session = tensorflow_gpu.new_session()
        return self._session

    @property
    def gpus(self) -> list[Row]:
        """The machine's GPUs as they are now.

        Raises:
            ValueError: a column of ``qargs`` is unknown here and to ``nvidia-smi``, or that is not installed.

        """
        return rows_of(gpus(), self._columns)

    @property
    def gpu_num(self) -> int:
        """How many there are."""
        return len(gpus())

    def auto_choice(
        self,
        mode: int | str = 0,
        key: Callable[[GPU], float] | None = None,
        n: int = 1,
        memory: Size | None = None,
        *,
        exclusive: bool = False,
        wait: bool | float = False,
        growth: bool | None = None,
        fallback: str | None = None,
    ) -> Choice:
        """``innkeeper.auto_choice`` with the modes above.

        Raises:
            ValueError: there is no such mode, or a method of one's own gives no list of GPUs.

        """
        options: dict[str, Any] = {
            "exclusive": exclusive,
            "wait": wait,
            "growth": growth,
            "fallback": fallback,
        }
        sort = getattr(self, f"_sort_by_{mode}", None) if isinstance(mode, str) else None
        is_ours = getattr(sort, "__func__", None) in (GPUManager._sort_by_power, GPUManager._sort_by_custom)
        if sort is not None and not is_ours and key is None:
            order = _uuids(sort(self.gpus), f"_sort_by_{mode}")
            return auto_choice(mode, _by_rank(order), n, memory, uuids=order, **options)
        if key is None:
            try:
                mode = mode_name(mode)
            except ValueError as error:
                raise ValueError(f"{error}, and there is no method _sort_by_{mode}") from None
        return auto_choice("free" if key else mode, key, n, memory, **options)

    # To build on.

    def _sort_by_memory(self, gpus: list[Row], by_size: bool = False) -> list[Row]:
        """By the free part of the memory, or by its size: most first."""

        def free(gpu: Row) -> float:
            return (gpu["memory.free"] or 0) / (1 if by_size else gpu["memory.total"] or 1)

        return sorted(gpus, key=free, reverse=True)

    def _sort_by_power(self, gpus: list[Row]) -> list[Row]:
        """By the power, of its limit: least first, and those that do not tell it last."""

        def power(gpu: Row) -> float:
            draw, limit = gpu["power.draw"], gpu["power.limit"]
            return float("inf") if draw is None or not limit else draw / limit

        return sorted(gpus, key=power)

    def _sort_by_custom(
        self,
        gpus: list[Row],
        key: str | Callable[[Row], Any],
        reverse: bool = False,
        qargs: Sequence[str] = (),
    ) -> list[Row]:
        """By a column, or by a function of a row: least first, or most with ``reverse``.

        Raises:
            ValueError: there is no such column.

        """
        if callable(key):
            return sorted(gpus, key=key, reverse=reverse)
        if any(key not in gpu for gpu in gpus):
            raise ValueError(f"there is no column {key!r}: pass it in GPUManager(qargs=[{key!r}])")
        told = [gpu for gpu in gpus if gpu[key] is not None]
        return sorted(told, key=lambda gpu: gpu[key], reverse=reverse) + [
            gpu for gpu in gpus if gpu[key] is None
        ]


def _by_rank(order: list[str]) -> Callable[[GPU], float]:
    """A key by which the first of these UUIDs is the best."""
    ranks = {uuid: -float(rank) for rank, uuid in enumerate(order)}
    return lambda gpu: ranks.get(gpu.uuid, -float(len(ranks)))


def _uuids(rows: Any, method: str) -> list[str]:
    """UUIDs of the rows that a method of the program returned.

    Raises:
        ValueError: it returned no list, an empty one, or an item that is no row.

    """
    if rows is None:
        raise ValueError(f"{method} returned None: it returns the GPUs that may be given, best first")
    if isinstance(rows, dict):
        raise ValueError(
            f"{method} returned one row: it returns a list of those that may be given, best first"
        )
    order = [row.get("uuid") if isinstance(row, dict) else None for row in rows]
    if not order:
        raise ValueError(f"{method} returned no GPU: it returns those that may be given, best first")
    if None in order:
        raise ValueError(f"{method} returned {rows[order.index(None)]!r}, which is no row of gpus")
    return [str(uuid) for uuid in order]


def _configured(session: Any) -> Any:
    if hasattr(session, "allow_soft_placement") and hasattr(session, "gpu_options"):
        return tensorflow_gpu.new_session(session)
    if hasattr(session, "graph") and hasattr(session, "run"):
        return tensorflow_gpu.like(session)
    raise TypeError(f"session is a tf.compat.v1.Session or a ConfigProto, got {type(session).__name__}")
