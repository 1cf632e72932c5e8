"""Settings of a ``DeviceManager`` that only programs of the predecessor, tensor-managed 0.1, have a use for.

``innkeeper.DeviceManager`` has them from here, so such programs find them where they are used to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}


class PredecessorSettings:
    """How often ``find_device`` looks again, how sizes are estimated, and a logger."""

    retry_limit: int = 10
    """How often ``find_device`` looks again when no node has room."""
    wait_time: float = 0.1
    """Seconds between two looks."""
    size_heuristic: Callable[[int], int] = staticmethod(lambda nbytes: nbytes)
    """From the bytes of a tensor to the bytes that ``size_estimate`` counts for it."""

    _level: str = "debug"
    _log: logging.Logger = logging.getLogger("innkeeper")

    @property
    def default_level(self) -> str:
        """The level of ``log`` when none is given: debug, info, warning, error or critical."""
        return self._level

    @default_level.setter
    def default_level(self, level: str) -> None:
        self._level = _checked_level(level)

    def log(self, message: str, level: str | None = None) -> None:
        """Logs to Python's logger ``innkeeper``."""
        self._log.log(_LEVELS[_checked_level(level or self._level)], message)


def _checked_level(level: str) -> str:
    if level not in _LEVELS:
        raise ValueError(f"{level!r} is no level of logging: use one of {', '.join(_LEVELS)}")
    return level
