"""``cuda:k`` is the k-th node that computes: the home of what is made or sent there.

There is one managed device, and all its tensors say ``cuda:0``. A home is where a tensor's bytes arrive; the
engine may move them, and operators take tensors of several homes together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

import torch
from innkeeper import _C, launch
from innkeeper.cuda_names.script import note

CURRENT = -1
"""The index of a device without one."""

_visible_gpus = torch.cuda.device_count  # PyTorch's own, which starts nothing
_thread = threading.local()  # index: what set_device said
_sent = WeakIdKeyDictionary()  # from a tensor to the index that a script sent it to
_shown = False  # Whether the script has used a device.
_several = False  # whether a script has named another home than the first


def asked(device: Any) -> int | None:
    """The index that a script means by ``device``, CURRENT if it says none, None if it does not mean CUDA."""
    if isinstance(device, str) and device.startswith("cuda"):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "cuda":
            return None
        return CURRENT if device.index is None else device.index
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    return None


def index_of(device: Any) -> int:
    """The index of an argument of ``torch.cuda``'s functions: None is the current device."""
    index = CURRENT if device is None else asked(device)
    if index is None:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return current() if index < 0 else index


def hidden() -> bool:
    """Whether ``CUDA_VISIBLE_DEVICES`` says that there is no device: scripts force the CPU like that.

    As with CUDA, what it says after the first use of a device is not heard.
    """
    if _shown or not launch.cards_are_hidden():
        return False
    said = os.environ["CUDA_VISIBLE_DEVICES"].strip()
    note("hidden", f"CUDA_VISIBLE_DEVICES={said!r} hides every device, so this script is told of none")
    return True


def show() -> None:
    """Keeps the devices visible from now on, because the script uses one."""
    global _shown
    _shown = True


def nodes() -> list[str]:
    """The computing nodes, as ``CUDA_VISIBLE_DEVICES`` numbers them. Does not start the runtime."""
    if hidden():
        return []
    if _C.started():
        return [node.name for node in _C.nodes() if node.computes]
    return _C.expected_nodes(_visible_gpus())


def node_at(index: int) -> str:
    """The node that ``cuda:index`` is. RuntimeError if there is none.

    A process of torchrun's says the number that it has on this machine, however few nodes it sees itself.
    """
    names = nodes()
    if names and index == _C.local_rank():
        index %= len(names)
    if not 0 <= index < len(names):
        there = ", ".join(f"cuda:{i} is {name}" for i, name in enumerate(names)) or "no device"
        raise RuntimeError(
            f"invalid device ordinal: cuda:{index}; {there}. INNKEEPER_NODES=sim:2x8GiB gives two, simulated"
        )
    return names[index]


def current() -> int:
    """The thread's index, 0 until it is set."""
    return getattr(_thread, "index", 0)


def several() -> bool:
    """Whether the script has named another home than the first."""
    return _several


def _take(index: int) -> str:
    """Makes the node the thread's home; returns the one before."""
    global _several
    name = node_at(index)
    if index > 0 and not _several:
        _several = True
        note("several", f"cuda:{index} is the home {name} of the one device, whose tensors all show cuda:0")
    return _C.set_home(name)


def set_current(index: int) -> None:
    """``torch.cuda.set_device``."""
    _take(index)
    _thread.index = index


@contextmanager
def home(index: int) -> Iterator[None]:
    """The thread's home inside; CURRENT leaves it."""
    if index < 0:
        yield
        return
    before, _thread.index = getattr(_thread, "index", None), index
    try:
        home_before = _take(index)
        try:
            yield
        finally:
            _C.set_home(home_before or node_at(0))  # a thread that has not chosen is at cuda:0
    finally:
        if before is None:
            del _thread.index
        else:
            _thread.index = before


def send(x: torch.Tensor, index: int) -> None:
    """Notes that ``x`` was made or sent there."""
    if not _several or isinstance(x, FakeTensor):
        return
    _sent[x] = index
    if x.untyped_storage().nbytes() and not _C.where(x):  # torch.empty: whoever writes it first is there
        with suppress(torch.OutOfMemoryError):
            _C.pin(x, node_at(index))
            _C.unpin(x)


def of(x: Any) -> int | None:
    """Where a managed tensor was made or sent to; of what operators made, where its bytes are.

    None for other tensors, and for fake ones, which have no bytes.
    """
    if not isinstance(x, torch.Tensor) or not _C.is_managed(x.device) or isinstance(x, FakeTensor):
        return None
    index = _sent.get(x)
    if index is None:
        names = nodes()
        index = next((names.index(name) for name in _C.where(x) if name in names), None)
    return index


def was_sent_to(x: torch.Tensor, index: int) -> bool:
    """Whether ``x`` is known to be there, so that sending it again gives ``x`` itself, as on CUDA.

    Of what operators made nothing is known: that is copied, so that writing the copy never changes ``x``.
    """
    return not _several or _sent.get(x) == index
