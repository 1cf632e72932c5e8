"""What CUDA sees in this process, and what of it was chosen: the way from a UUID to an ordinal.

Until something has started CUDA, ``CUDA_VISIBLE_DEVICES`` decides. A choice is then written there, by UUID,
so that CUDA will see the chosen cards alone, in the order in which they were chosen. Once CUDA is started the
variable is read no more: then the driver is asked which card each ordinal is. Nothing here starts CUDA, and
nothing widens what the process was given.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from innkeeper import _C

VARIABLE = "CUDA_VISIBLE_DEVICES"

_lock = threading.RLock()
_shown: list[tuple[list[str], Callable[[], bool]]] = []  # UUIDs of each choice, and whether it still counts
_inherited: str | None = None  # the variable before the first of them
_written: str | None = None  # what we last made of it


def _new_lock_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_new_lock_in_child)


def _is_ours() -> bool:
    return bool(_shown) and os.environ.get(VARIABLE) == _written


def given() -> list[str]:
    """UUIDs that this process may choose from.

    Raises:
        RuntimeError: there is none, or the variable's indices cannot be resolved on this machine.

    """
    with _lock:
        before = _inherited if _is_ours() else os.environ.get(VARIABLE)
    return _C.given_gpus(before)


def show(uuids: list[str], counts: Callable[[], bool]) -> None:
    """Adds a choice to what CUDA will see, for as long as ``counts()`` is true and until ``hide``."""
    global _inherited
    with _lock:
        if not _is_ours():  # the first choice, or the program has set the variable itself
            _shown.clear()
            _inherited = os.environ.get(VARIABLE)
        _shown.append((uuids, counts))
        _write()


def hide(uuids: list[str]) -> None:
    """Takes a choice back; after the last one the variable is as it was before the first."""
    with _lock:
        ours = _is_ours()
        for i, (shown, _) in enumerate(_shown):
            if shown is uuids:
                del _shown[i]
                break
        else:
            return
        if ours:
            _write()


def _write() -> None:
    global _written
    # A child of fork() does not have its parent's choices.
    _shown[:] = [entry for entry in _shown if entry[1]()]
    if not _shown:
        if _inherited is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = _inherited
        return
    _written = ",".join(dict.fromkeys(uuid for uuids, _ in _shown for uuid in uuids))
    os.environ[VARIABLE] = _written


def cuda_is_started() -> bool:
    """Whether something in this process has started CUDA, so that what it sees is fixed."""
    return _C.cuda_view() is not None


def ordinals(uuids: list[str]) -> list[int]:
    """CUDA's ordinal of each, in this process, as things are now.

    Raises:
        RuntimeError: CUDA was started in this process without one of them.

    """
    view = _C.cuda_view()
    listing = _C.visible_gpus() if view is None else view
    missing = [uuid for uuid in uuids if uuid not in listing]
    if missing:
        raise RuntimeError(
            f"CUDA cannot use {', '.join(missing)} in this process: it sees "
            f"{', '.join(listing) or 'no GPU'}. Choose before anything starts CUDA, or with more GPUs visible"
        )
    return [listing.index(uuid) for uuid in uuids]
