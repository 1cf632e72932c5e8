"""Moves the tensors among the arguments of a call to the managed device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import MutableMapping
from typing import Any

from torch.nn.utils.rnn import PackedSequence

from innkeeper._register import DEVICE
from torch import Tensor


def moved(x: Any) -> Any:
    """``x`` with its tensors on the device; ``x`` itself where they are there already.

    Looks into lists, tuples, named tuples, dicts, data classes and packed sequences, and classes derived from
    these. What holds a tensor that moves is copied, one level deep, so the caller's own stays as it was; what
    does not is handed on, so that the callee may write to it.
    """
    if isinstance(x, Tensor):
        return x.to(DEVICE)
    if isinstance(x, PackedSequence):
        return x.to(device=DEVICE)  # type: ignore[call-arg]  # its batch sizes belong on the CPU
    if isinstance(x, tuple):
        items = [moved(item) for item in x]
        if _same(items, x):
            return x
        return type(x)(*items) if hasattr(x, "_fields") else _filled(x, tuple(items))
    if isinstance(x, list):
        items = [moved(item) for item in x]
        if _same(items, x):
            return x
        sequence = _copied(x)
        sequence[:] = items
        return sequence
    if isinstance(x, MutableMapping):
        changed = _changed(x)
        mapping = _copied(x) if changed else x
        for key, value in changed.items():
            mapping[key] = value
        return mapping
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        changed = _changed({field.name: getattr(x, field.name, None) for field in dataclasses.fields(x)})
        instance: Any = copy.copy(x) if changed else x
        for name, value in changed.items():
            object.__setattr__(instance, name, value)  # frozen ones too
        return instance
    return x


def _copied(x: Any) -> Any:
    return x.copy() if type(x) in (list, dict) else copy.copy(x)  # TorchDynamo knows the former


def _same(items: list[Any], of: Any) -> bool:
    return all(new is old for new, old in zip(items, of, strict=True))


def _changed(values: MutableMapping[Any, Any]) -> dict[Any, Any]:
    """The values that moving changes, moved. Loops, since TorchDynamo knows no ``:=`` in comprehensions."""
    changed = {}
    for key, value in values.items():
        new = moved(value)
        if new is not value:
            changed[key] = new
    return changed


def _filled(x: tuple[Any, ...], items: tuple[Any, ...]) -> Any:
    """``items`` as the class of ``x``: ``torch.Size``, a structseq, or a class derived from tuple."""
    return items if type(x) is tuple else type(x)(items)
