"""Operators of libraries that have a general kernel beside one for CUDA or the CPU (``torch.library``).

The dispatcher would give managed tensors the general one, which computes by other steps and often to other
bits. This module gives them the kernel of the device behind the managed one, as tensors there would get.
"""

from __future__ import annotations

import functools
from importlib.machinery import ExtensionFileLoader
from typing import Any

import torch
from innkeeper import _C
from innkeeper.torch_patches.patch import put


def install() -> None:
    """Looks at an operator again after each kernel that it gets, and at all after a library is loaded. Once.

    Operators that a compiled Python module registers are looked at after its import.
    """
    library, load = torch.library.Library, torch.ops.load_library
    define, impl, run_module = library.define, library.impl, ExtensionFileLoader.exec_module

    @functools.wraps(define)
    def also_define(self: Any, schema: str, *given: Any, **named: Any) -> Any:
        made = define(self, schema, *given, **named)
        _look(self.ns, schema.partition("(")[0].strip())
        return made

    @functools.wraps(impl)
    def also_impl(self: Any, op_name: Any, *given: Any, **named: Any) -> None:
        impl(self, op_name, *given, **named)
        _look(self.ns, op_name if isinstance(op_name, str) else op_name.name())

    @functools.wraps(load)
    def also_load(path: Any) -> None:
        load(path)
        _C.look_again_at_all()

    @functools.wraps(run_module)
    def also_run_module(self: Any, module: Any) -> None:
        run_module(self, module)
        _C.look_at_new()

    put("torch.library.Library.define", also_define)
    put("torch.library.Library.impl", also_impl)
    put("torch.ops.load_library", also_load)
    put("importlib.machinery.ExtensionFileLoader.exec_module", also_run_module)


def _look(namespace: str, name: str) -> None:
    """At an operator by its name, with or without its namespace and its overload."""
    space, _, bare = name.rpartition("::")
    bare, _, overload = bare.partition(".")
    _C.look_again(f"{space or namespace}::{bare}", "" if overload == "default" else overload)
