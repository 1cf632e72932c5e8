"""A kernel that Inductor wrote, as an operator. Modules that Inductor writes import this one."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from torch._inductor.codecache import LambdaFuture

import torch
from innkeeper import _C  # noqa: F401 - it defines the operator

ENTRY = "innkeeper_kernel"  # a CompiledKernel (src/torch/kernels/compiled.h)
KINDS = "innkeeper_kernel_arguments"  # a letter for each argument, in the kernel's order:
READ, WRITTEN, SIZE, NUMBER = "rwsn"


def compiled_kernel(compiled: Any) -> Any:
    """The kernel's replacement: a callable, or a future of one while the compiler runs."""
    if isinstance(compiled, LambdaFuture):
        return LambdaFuture(lambda: _operator(compiled.result()), future=compiled.future)
    return _operator(compiled)


def _operator(binding: Any) -> Callable[..., None]:
    """Calls the operator with the arguments that the binding would take."""
    library = ctypes.CDLL(binding.__self__.__file__)  # the module's
    address = ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p).value
    kinds = (ctypes.c_char_p.in_dll(library, KINDS).value or b"").decode()
    read, written = ([i for i, kind in enumerate(kinds) if kind == which] for which in (READ, WRITTEN))
    rest = [i for i, kind in enumerate(kinds) if kind in (SIZE, NUMBER)]
    numbers = {i for i in rest if kinds[i] == NUMBER}
    operator = torch.ops.innkeeper.compiled.default

    def call(*arguments: Any) -> None:
        sizes = [_bits(arguments[i]) if i in numbers else arguments[i] for i in rest]
        operator([arguments[i] for i in read], [arguments[i] for i in written], address, sizes)

    return call


def _bits(number: float) -> int:
    """A double's, as the kernel's entry reads it."""
    return struct.unpack("q", struct.pack("d", number))[0]
