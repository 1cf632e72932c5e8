"""Operators of libraries that have a general kernel beside one for CUDA or the CPU (``torch.library``).

Managed tensors would be given the general one, which computes by other steps and often to other bits. They
are given the one for what is behind the device, as tensors there would be.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from innkeeper import _C


def tell() -> None:
    """Has a library's operators looked at again after each kernel that they get from Python. Once."""
    own = torch.library.Library.impl

    @functools.wraps(own)
    def impl(self: Any, op_name: Any, *given: Any, **named: Any) -> None:
        own(self, op_name, *given, **named)
        name = op_name if isinstance(op_name, str) else op_name.name()
        name, _, overload = (name if "::" in name else f"{self.ns}::{name}").partition(".")
        _C.look_again(name, "" if overload == "default" else overload)

    torch.library.Library.impl = impl  # type: ignore[method-assign]
