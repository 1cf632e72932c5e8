"""``torch.compile``: Inductor would write kernels for a card, since tensors show themselves as there."""

from __future__ import annotations

import functools
from typing import Any

import torch
from innkeeper.cuda_names.put import put
from innkeeper.cuda_names.script import note

_compile = torch.compile


def install() -> None:
    """Compiles without Inductor where a script names no backend. Once."""
    put(torch, compile=_without_inductor)


@functools.wraps(_compile)
def _without_inductor(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
    if backend == "inductor":
        note(
            "compile",
            "torch.compile goes without Inductor (backend aot_eager): it would write kernels for a card",
        )
        options.pop("mode", None), options.pop("options", None)  # Inductor's
        backend = "aot_eager"
    return _compile(model, backend=backend, **options)
