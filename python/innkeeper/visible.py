"""The GPUs that CUDA sees in this process, and the chosen ones of them: the way from a UUID to an ordinal.

``src/lease/shown.h`` does it, and explains how. It sets environment variables in C, which ``os.environ`` does
not see, so this module copies them there.
"""

from __future__ import annotations

import os
import threading

from innkeeper import _C, placement

_lock = threading.RLock()


def _new_lock_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_new_lock_in_child)


def _copy_variables() -> None:
    for name, value in _C.visible_variables().items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


def show(uuids: list[str], lease: _C.Lease) -> _C.Shown:
    """Adds a choice to the GPUs that CUDA will see, until ``hide`` or the end of its lease."""
    with _lock:
        shown = _C.show_gpus(uuids, lease)
        _copy_variables()
        return shown


def hide(shown: _C.Shown) -> None:
    """Takes a choice back; after the last one the variables are as they were before the first."""
    with _lock:
        shown.end()
        _copy_variables()


cuda_is_started = _C.cuda_is_started
"""Whether something in this process has started CUDA, so that what it sees is fixed."""


def ordinals(uuids: list[str]) -> list[int]:
    """CUDA's ordinal of each UUID, as things are now; of simulated GPUs the managed device's number.

    Raises:
        RuntimeError: CUDA, or the managed device, was started in this process without one of them.

    """
    if not (are_simulated(uuids) and _C.started()):
        return _C.gpu_ordinals(uuids)
    nodes = placement.computing_nodes()
    wanted = [_C.simulated_node(uuid) for uuid in uuids]
    missing = [name for name in wanted if name not in nodes]
    if missing:
        raise RuntimeError(
            f"the managed device was started in this process without {', '.join(missing)}: it has "
            f"{', '.join(nodes)}. Choose before the device is used"
        )
    return [nodes.index(name) for name in wanted]


def are_simulated(uuids: list[str]) -> bool:
    """Whether they are simulated GPUs' UUIDs."""
    return bool(uuids) and all(_C.simulated_node(uuid) for uuid in uuids)
