"""How managed tensors are pickled and sent to other processes, beyond PyTorch's own way.

``pickle``, ``torch.save`` and ``copy`` work as in PyTorch: by storages, so that shared storages stay shared.
This module adds two things, in Python's own registries: sparse tensors, and tensors sent to other processes.
Calls that would share memory with other processes raise an error.
"""

from __future__ import annotations

import copyreg
import functools
import warnings
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.multiprocessing import reductions

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import apply, put


def register() -> None:
    """Adds them. Once."""
    apply("copyreg.dispatch_table[Tensor]", lambda: copyreg.pickle(torch.Tensor, _reduce_tensor))
    apply(
        "multiprocessing.reduction.ForkingPickler._extra_reducers[UntypedStorage]",
        lambda: ForkingPickler.register(torch.UntypedStorage, _send_storage),
    )
    _refuse_to_share()


def _reduce_tensor(x: torch.Tensor) -> tuple[Any, ...]:
    """Takes a sparse tensor by its parts, as PyTorch does where it knows the device.

    It would take a copy on the CPU instead, and move that when it is unpickled: in the old format of files
    before its bytes have been read.
    """
    if _C.is_managed(x.device) and x.layout != torch.strided:
        return _sparse_parts(x)
    return x.__reduce_ex__(2)


def _sparse_parts(x: torch.Tensor) -> tuple[Any, ...]:
    if x.layout == torch.sparse_coo:
        parts: tuple[Any, ...] = (x._indices(), x._values(), x.size(), x.is_coalesced())
    elif x.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (x.crow_indices(), x.col_indices(), x.values(), x.size())
    else:
        parts = (x.ccol_indices(), x.row_indices(), x.values(), x.size())
    return torch._utils._rebuild_sparse_tensor, (x.layout, parts)


def _send_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    """Sends a copy: managed memory belongs to one process, and moves."""
    if not _C.is_managed(storage.device):
        return reductions.reduce_storage(storage)
    warnings.warn(
        "a managed tensor goes to another process as a copy: neither sees what the other writes from now on. "
        "Send x.cpu() where both must see it.",
        stacklevel=2,
    )
    data = bytearray(storage.nbytes())
    if data:
        torch.frombuffer(data, dtype=torch.uint8).copy_(_bytes_of(storage))
    return _receive_storage, (data, storage.device.index)


def _refuse_to_share() -> None:
    """Has ``share_memory_()`` say that it cannot, and ``is_shared()`` the truth.

    PyTorch does nothing there for all devices but the CPU, since CUDA's memory can be sent as it is:
    processes that are to train one model together would each train a copy, without a word.
    """
    share, is_shared = torch.UntypedStorage.share_memory_, torch.UntypedStorage.is_shared

    @functools.wraps(share)
    def refuse(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if not _C.is_managed(self.device):
            return share(self, *args, **kwargs)
        raise RuntimeError(
            "share_memory_: a managed tensor's memory belongs to one process: share it on the CPU "
            "(module.cpu().share_memory()), and have each process send what it computes with to the device"
        )

    def answer(self: torch.UntypedStorage) -> bool:
        """Whether other processes see writes to this storage."""
        return not _C.is_managed(self.device) and is_shared(self)

    put("torch.UntypedStorage.share_memory_", refuse)
    put("torch.UntypedStorage.is_shared", answer)


def send_tensor(x: torch.Tensor) -> tuple[Any, ...]:
    """``torch.multiprocessing.reductions.reduce_tensor`` where managed tensors show themselves as CUDA's.

    PyTorch would share CUDA's memory.
    """
    if not _C.is_managed(x.device) or x.layout != torch.strided or x.is_nested:
        return reductions.reduce_tensor(x)
    if x.requires_grad and not x.is_leaf:
        raise RuntimeError(
            "a tensor with a history is not sent to another process, as gradients do not go there: "
            "send x.detach()"
        )
    metadata = (x.storage_offset(), x.size(), x.stride(), x.requires_grad)
    return reductions.rebuild_tensor, (type(x), x._typed_storage(), metadata)


def _receive_storage(data: bytearray, index: int) -> torch.UntypedStorage:
    """A storage on the device of this index. The current device, if this process has no such device."""
    there = torch.device(DEVICE, index) if index < _C.device_count() else torch.device(DEVICE)
    storage = torch.UntypedStorage(len(data), device=there)
    if data:
        _bytes_of(storage).copy_(torch.frombuffer(data, dtype=torch.uint8))
    return storage


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
