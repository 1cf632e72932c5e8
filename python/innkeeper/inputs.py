"""Moves the tensors among the arguments of a call to the managed device."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, UserDict
from collections.abc import Iterator
from typing import Any

from torch.nn.utils.rnn import PackedSequence

import torch
from torch import Tensor

Memo = dict[int, Any]
"""What became of what was met, by its ``id``: what is handed over twice stays one."""


def moved(x: Any, device: str | torch.device, memo: Memo | None = None) -> Any:
    """``x`` with its tensors on the device; ``x`` itself if they are there already, or on meta.

    Looks into lists, tuples, named tuples, dicts, data classes and packed sequences, and classes derived from
    these. A container of a tensor that moves is copied, so the caller's own stays unchanged. A container
    without one is passed on, so that the callee may write to it. In the copy of a container that contains
    itself, that item is still the original.
    """
    if isinstance(x, (Tensor, PackedSequence)):
        if memo is not None and id(x) in memo:
            return memo[id(x)]
        # Of a packed sequence the batch sizes stay on the CPU.
        there = x if isinstance(x, Tensor) and x.device.type == "meta" else x.to(device=device)  # type: ignore
        if memo is not None:
            memo[id(x)] = there
        return there
    if not isinstance(x, (tuple, list, dict, UserDict)) and not _is_record(x):
        return x
    if memo is None:
        return _moved_inside(x, device, None)
    if id(x) not in memo:
        memo[id(x)] = x  # placeholder while x is copied, in case it contains itself
        memo[id(x)] = _moved_inside(x, device, memo)
    return memo[id(x)]


def _is_record(x: Any) -> bool:
    return dataclasses.is_dataclass(x) and not isinstance(x, type)


def _moved_inside(x: Any, device: str | torch.device, memo: Memo | None) -> Any:
    if isinstance(x, (tuple, list)):
        items = [moved(item, device, memo) for item in x]
        if all(new is old for new, old in zip(items, x, strict=True)):
            return x
        if isinstance(x, tuple):
            return _tuple_like(x, items)
        sequence = _copied(x)
        sequence[:] = items
        return sequence
    is_mapping = isinstance(x, (dict, UserDict))
    values = x if is_mapping else {each.name: getattr(x, each.name, None) for each in dataclasses.fields(x)}
    changed = {}  # a loop, because TorchDynamo does not support ``:=`` in comprehensions
    for key, value in values.items():
        new = moved(value, device, memo)
        if new is not value:
            changed[key] = new
    copied: Any = _copied(x) if changed else x
    for key, value in changed.items():
        if is_mapping:
            try:
                copied[key] = value
            except Exception:  # a read-only one raises its author's exception
                _kind_of_dict(copied).__setitem__(copied, key, value)
        else:
            object.__setattr__(copied, key, value)  # frozen ones too
    return copied


def _tuple_like(x: tuple[Any, ...], items: list[Any]) -> Any:
    """``items`` as the class of ``x``, past a constructor that may take something else."""
    if type(x) is tuple:
        return tuple(items)
    try:
        made = tuple.__new__(type(x), items)
    except TypeError:  # a structseq, such as the result of torch.max
        return type(x)(items)
    if hasattr(x, "__dict__"):
        made.__dict__.update(x.__dict__)
    return made


def _copied(x: Any) -> Any:
    if type(x) in (list, dict):
        return x.copy()  # TorchDynamo knows this one
    try:
        copied = copy.copy(x)
    except Exception:  # a read-only dict refuses its items, with its author's exception
        if not isinstance(x, dict):
            raise
        copied = x
    if copied is not x or not isinstance(x, dict):
        return copied
    # copy() may return an immutable object itself; this copy must be changed.
    kind = _kind_of_dict(x)
    made = kind.__new__(type(x))
    for key, value in kind.items(x):
        kind.__setitem__(made, key, value)
    for name, value in _attributes(x):
        object.__setattr__(made, name, value)
    return made


def _kind_of_dict(x: dict[Any, Any]) -> Any:
    """The class whose own methods keep the items: an ordered one has an order beside them."""
    return OrderedDict if isinstance(x, OrderedDict) else dict


def _attributes(x: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(x, "__dict__", {}).items()
    for each in type(x).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                yield name, getattr(x, name)
