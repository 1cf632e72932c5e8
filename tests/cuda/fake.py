"""Control of the fake runtime by tests (tests/fake_cuda/runtime/control.h)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

MIB = 1 << 20
UNKNOWN, OUT_OF_MEMORY, ILLEGAL_ADDRESS, INVALID_VALUE = 999, 2, 700, 1
ONCE, BROKEN, LOST = 0, 1, 2
LATE, EARLY, RANDOM = 0, 1, 2
IS_HERE = "FAKE_CUDA_KERNELS" in os.environ

if IS_HERE:
    _library = ctypes.CDLL("libcudart.so.13")
    for _name, _result, _arguments in (
        ("violations", ctypes.c_long, []),
        ("forget_violations", None, []),
        ("fail", None, [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]),
        ("cancel_failures", None, []),
        ("failures_left", ctypes.c_long, []),
        ("failed_call", ctypes.c_char_p, []),
        ("forget_failed_call", None, []),
        ("calls", ctypes.c_long, []),
        ("break", None, [ctypes.c_int, ctypes.c_int]),
        ("repair", None, [ctypes.c_int]),
        ("broken", ctypes.c_int, [ctypes.c_int]),
        ("set_others", None, [ctypes.c_int, ctypes.c_size_t]),
        ("used", ctypes.c_size_t, [ctypes.c_int]),
        ("locked_bytes", ctypes.c_size_t, []),
        ("pending", ctypes.c_size_t, []),
        ("run", None, []),
        ("set_mode", None, [ctypes.c_int, ctypes.c_uint]),
    ):
        _function = getattr(_library, f"fake_cuda_{_name}")
        _function.restype, _function.argtypes = _result, _arguments


def ask(name: str, *arguments: int | bytes) -> int:
    """Calls one of the control functions."""
    return getattr(_library, f"fake_cuda_{name}")(*arguments)


def fail(call: str, skip: int = 0, error: int = UNKNOWN, effect: int = ONCE) -> None:
    """Fails the call of that name ("" for any) after `skip` others."""
    ask("fail", call.encode(), skip, error, effect)


def failed_call() -> str:
    return _library.fake_cuda_failed_call().decode()


@contextlib.contextmanager
def late() -> Iterator[None]:
    """Makes work run as late as it may meanwhile, in any mode of the run (FAKE_CUDA_MODE)."""
    name, _, seed = os.environ.get("FAKE_CUDA_MODE", "late").partition(":")
    ask("set_mode", LATE, 0)
    try:
        yield
    finally:
        ask("set_mode", {"late": LATE, "early": EARLY, "random": RANDOM}[name], int(seed or 0))


@contextlib.contextmanager
def others_hold(gpu: int, size: int) -> Iterator[None]:
    """Makes other processes hold this many bytes of a GPU's memory meanwhile."""
    ask("set_others", gpu, size)
    try:
        yield
    finally:
        ask("set_others", gpu, 0)
