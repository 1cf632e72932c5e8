"""Which devices a program sees, without starting the runtime: after that a program may still fork."""

from __future__ import annotations

import functools
import os

import torch
from innkeeper import _C, placement
from innkeeper.script import note

visible_gpus = torch.cuda.device_count  # PyTorch's own, which starts nothing
_used = False  # The program has used a device.


def hidden() -> bool:
    """Whether ``CUDA_VISIBLE_DEVICES`` hides every device, as programs that force the CPU do.

    As with CUDA, a change of the variable after the first use of a device has no effect.
    """
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if _used or said is None or _C.expected_nodes(visible_gpus()):
        return False
    if not _hidden_said():
        note("hidden", f"CUDA_VISIBLE_DEVICES={said.strip()!r} hides every device, so this script sees none")
    return True


@functools.cache
def _hidden_said() -> bool:
    """Whether another process of the run has said so."""
    return not _C.may_say_hidden()


def keep_visible() -> None:
    """Keeps the devices visible from now on, because the program uses one."""
    global _used
    _used = True


def nodes() -> list[str]:
    """The computing nodes, as ``CUDA_VISIBLE_DEVICES`` numbers them."""
    if hidden():
        return []
    if _C.started():
        return placement.computing_nodes()
    return _C.expected_nodes(visible_gpus())


def device_count() -> int:
    """``torch.cuda.device_count``: the number of nodes that compute."""
    return len(nodes())


def is_available() -> bool:
    """``torch.cuda.is_available``."""
    return not hidden()
