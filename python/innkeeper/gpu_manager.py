"""``GPUManager``, as users of tf_gpu_manager know it, over ``auto_choice``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from innkeeper.choice import Choice, auto_choice
from innkeeper.frameworks import tensorflow_gpu
from innkeeper.gpus import GPU, gpus
from innkeeper.leases import MODES

Row = dict[str, Any]
"""A GPU under the names of ``nvidia-smi --query-gpu``: MiB, watts, per cent."""


class GPUManager:
    """Chooses the freest GPU, anew at each call.

    GPUs that nobody else on the machine has chosen or leased come first::

        gm = innkeeper.GPUManager()
        with gm.auto_choice():  # or mode=1, mode=2, mode="utilization"
            ...

    | mode | sorts by |
    |---|---|
    | 0, ``"free"`` | largest free memory |
    | 1, ``"ratio"`` | highest free part of the memory |
    | 2, ``"power"`` | least power, of its limit |
    | 3, ``"utilization"`` | least utilization |
    | a name ``"XXX"`` | the method ``_sort_by_XXX(self, gpus)`` of a subclass: rows, best first |

    With TensorFlow ``gm.sess`` is a session of its version 1's kind that places softly and takes memory as it
    needs it.

    Args:
        session: your session instead; or a ``ConfigProto``, on top of which one is made.
        initSession: ``False``: there is no ``gm.sess``. By default there is one if TensorFlow was imported.

    """

    def __init__(self, session: Any = None, initSession: bool = True) -> None:
        self._session = session
        self._with_session = initSession
        if session is not None and _is_configuration(session):
            self._session = tensorflow_gpu.new_session(session)
        elif session is not None:
            _check_session(session)
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
        """The machine's GPUs as they are now."""
        return [_row(gpu) for gpu in gpus()]

    @property
    def gpu_num(self) -> int:
        """How many there are."""
        return len(gpus())

    def auto_choice(
        self,
        mode: int | str = 0,
        key: Callable[[GPU], float] | None = None,
        n: int = 1,
        memory: int | None = None,
        exclusive: bool = False,
        *,
        wait: bool | float = False,
    ) -> Choice:
        """``innkeeper.auto_choice`` with the modes above.

        Raises:
            ValueError: there is no such mode.

        """
        sort = getattr(self, f"_sort_by_{mode}", None) if isinstance(mode, str) else None
        if sort is not None and key is None:
            key = _by_rank(sort(self.gpus))
        elif mode in MODES:
            mode = MODES[int(mode)]
        elif mode not in MODES.values():
            known = ", ".join(f'{number} or "{name}"' for number, name in MODES.items())
            raise ValueError(f"mode {mode!r} is none of {known}, and there is no method _sort_by_{mode}")
        return auto_choice("free" if key else mode, key, n, memory, exclusive, wait=wait)


def _row(gpu: GPU) -> Row:
    def mib(size: int | None) -> int | None:
        return None if size is None else size >> 20

    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "gpu_name": gpu.name,
        "memory.total": mib(gpu.memory_total),
        "memory.free": mib(gpu.memory_free),
        "memory.used": mib(gpu.memory_used),
        "utilization.gpu": None if gpu.utilization is None else round(gpu.utilization * 100),
        "power.draw": gpu.power,
        "power.limit": gpu.power_limit,
        "temperature.gpu": gpu.temperature,
    }


def _by_rank(rows: list[Row]) -> Callable[[GPU], float]:
    ranks = {row["uuid"]: rank for rank, row in enumerate(rows)}
    return lambda gpu: -float(ranks.get(gpu.uuid, len(ranks)))


def _is_configuration(session: Any) -> bool:
    return hasattr(session, "allow_soft_placement") and hasattr(session, "gpu_options")


def _check_session(session: Any) -> None:
    config = getattr(session, "_config", None)
    if config is None or not config.allow_soft_placement or not config.gpu_options.allow_growth:
        warnings.warn(
            "the session was made without allow_soft_placement or gpu_options.allow_growth, which cannot be "
            "changed any more; make it with both, pass its ConfigProto as session=, or leave session= out",
            stacklevel=3,
        )
