"""Triton: kernels that a program launches by hand take managed tensors.

A launch reads the operands' addresses, and those of managed tensors lead nowhere. So each launch gets the
real tensors, all at one node, as by ``innkeeper.resident(x, write=True)``, because a kernel does not declare
the operands that it writes. Kernels behind ``torch.library.triton_op`` and ``wrap_triton``, and autotuned
ones, are launched the same way.

To support this itself, Triton would need pre-run hooks (``JITFunction.pre_run_hooks``) that may exchange
arguments. Its interpreter (``TRITON_INTERPRET=1``) copies operands to the CPU and back, and needs nothing.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C, placement
from innkeeper.integrations.imports import replace_method
from torch import Tensor


def _tensor_of(argument: Any) -> Any:
    """A tensor; the tensor of a descriptor, by which a kernel loads blocks; or the argument itself."""
    return argument if isinstance(argument, Tensor) else getattr(argument, "base", argument)


def _managed_among(arguments: Sequence[Any]) -> list[Tensor]:
    with torch._C.DisableTorchFunction():  # run --managed shows them as CUDA's
        tensors = map(_tensor_of, arguments)
        return [x for x in tensors if isinstance(x, Tensor) and _C.is_managed(x.device)]


def _over(argument: Any, real: dict[int, Tensor]) -> Any:
    """The argument, over the real tensor."""
    lent = real.get(id(_tensor_of(argument)))
    if lent is None or isinstance(argument, Tensor):
        return argument if lent is None else lent
    descriptor = copy.copy(argument)
    descriptor.base = lent
    return descriptor


def _node_of(tensors: Sequence[Tensor]) -> str:
    """The computing node with most of their bytes; the thread's preferred node if none has any."""
    held: dict[str, int] = {}
    for x in tensors:
        for node in placement.where(x):
            held[node] = held.get(node, 0) + x.nbytes
    home = _C.home()
    computing = [node.name for node in _C.nodes() if node.computes]
    return max(computing, key=lambda node: (held.get(node, 0), node == home))


def _lending(own: Any) -> Any:
    @functools.wraps(own)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        managed = _managed_among((*arguments, *named.values()))
        if not managed:
            return own(self, *arguments, **named)
        node = _node_of(managed)
        with ExitStack() as lent:
            real = {id(x): lent.enter_context(placement.resident(x, node, write=True)) for x in managed}
            on = next(iter(real.values())).device
            if on.type == "cuda":  # Triton launches at the current device
                lent.enter_context(torch.cuda._DeviceGuard(on.index))
            arguments = tuple(_over(x, real) for x in arguments)
            named = {name: _over(x, real) for name, x in named.items()}
            try:
                return own(self, *arguments, **named)
            finally:
                real.clear()  # resident() looks for remaining holders next
                del arguments, named

    return run


def _adapt(jit: ModuleType) -> None:
    replace_method(jit, "JITFunction.run", _lending)


AFTER = {"triton.runtime.jit": _adapt}
