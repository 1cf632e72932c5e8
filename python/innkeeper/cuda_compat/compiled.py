"""``torch.compile``: Inductor would write kernels for a GPU, since tensors show themselves as there."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from innkeeper.cuda_compat.put import put
from innkeeper.integrations.imports import after_import
from innkeeper.script import note
from innkeeper.torch_patches.patch import patch

_compile = torch.compile


def install() -> None:
    """Compiles without Inductor where a script names no backend. Once."""
    put(torch, compile=_without_inductor)
    after_import({"torch._functorch.config": _recompute_by_saved_states}.get)


def _recompute_by_saved_states(config: ModuleType) -> None:
    """Has compiled checkpoints save the random state, as uncompiled ones do, and draw the same numbers.

    For CUDA PyTorch hands its graphs generators that a captured graph can replay. Ours have no such state.
    """
    patch("torch._functorch.config.graphsafe_rng_functionalization", lambda _: False)


@functools.wraps(_compile)
def _without_inductor(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
    if backend == "inductor":
        options.pop("mode", None), options.pop("options", None)  # Inductor's
        backend = _saying_so
    return _compile(model, backend=backend, **options)


def _saying_so(graph: Any, inputs: Any) -> Any:
    """When something is compiled: libraries decorate much that a script never calls."""
    from torch._dynamo.backends.registry import lookup_backend

    note(
        "compile",
        "torch.compile goes without Inductor (backend aot_eager): it would write kernels for a GPU",
    )
    return lookup_backend("aot_eager")(graph, inputs)
