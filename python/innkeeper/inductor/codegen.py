"""What Inductor writes for ``managed``: its kernels for the CPU, entered as operators are.

Inductor finds who schedules and who writes by a device's type. For the CPU's these are asked now; they answer
with ours while a graph of ours is compiled, and with Inductor's own at all other times.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Iterator
from typing import Any

from torch._inductor.codegen import common
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

import torch
from innkeeper.inductor import kernel
from innkeeper.inductor.labels import LABEL, MANAGED

_ours = contextvars.ContextVar("innkeeper's graph is compiled", default=False)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """For the graph that is compiled meanwhile, by this thread."""
    _register()
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


@functools.cache
def _register() -> None:
    common.init_backend_registration()
    theirs = common.device_codegens["cpu"]

    class Wrapper(theirs.wrapper_codegen):  # type: ignore[name-defined]
        @staticmethod
        def create(*arguments: Any, **options: Any) -> Any:
            return (PythonWrapper if _ours.get() else theirs.wrapper_codegen).create(*arguments, **options)

    common.device_codegens["cpu"] = common.DeviceCodegen(
        lambda scheduler: (Scheduling if _ours.get() else theirs.scheduling)(scheduler),
        Wrapper,
        theirs.cpp_wrapper_codegen,
        theirs.fx_wrapper_codegen,
    )


class Scheduling(CppScheduling):
    """Inductor's, whose kernels have an entry for the operator beside their own."""

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        """As Inductor's, with the entry behind the kernel."""
        arguments = self.kernel_group.args if kernel_args is None else kernel_args
        _, _, types = arguments.cpp_argdefs()
        return super().define_kernel(src_code + _entry(types), nodes, kernel_args)


def _entry(types: list[str]) -> str:
    """C++ for a kernel's entry, by its arguments' types: the operator gives what is read first."""
    kinds = "".join(_kind(each) for each in types)
    read, written, size = 0, kinds.count(kernel.READ), 0
    arguments = []
    for kind, each in zip(kinds, types, strict=True):
        if kind == kernel.READ:
            arguments.append(f"static_cast<{each}>(data[{read}])")
            read += 1
        elif kind == kernel.WRITTEN:
            arguments.append(f"static_cast<{each}>(data[{written}])")
            written += 1
        else:
            value = f"sizes[{size}]" if kind == kernel.SIZE else f"c10::bit_cast<double>(sizes[{size}])"
            arguments.append(f"static_cast<{each}>({value})")
            size += 1
    return f"""
extern "C" {{
extern const char* const {kernel.KINDS};
const char* const {kernel.KINDS} = "{kinds}";
void {kernel.ENTRY}(void* const* data, const int64_t* sizes) {{
    kernel({", ".join(arguments)});
}}
}}
"""


def _kind(type_name: str) -> str:
    if type_name.endswith("*"):
        return kernel.READ if type_name.startswith("const ") else kernel.WRITTEN
    return kernel.NUMBER if "float" in type_name or "double" in type_name else kernel.SIZE


class _Ways:
    """How our modules differ from Inductor's: they say managed where the graph has the label."""

    def define_kernel(self, kernel_name: str, kernel_body: str, *rest: Any, **options: Any) -> None:
        """What the module calls is the operator."""
        if kernel.ENTRY in kernel_body:
            kernel_body = f"{kernel.compiled_kernel.__name__}({kernel_body.rstrip()})"
        super().define_kernel(kernel_name, kernel_body, *rest, **options)  # type: ignore[misc]

    def make_allocation(self, name: str, device: torch.device, *rest: Any, **options: Any) -> str:
        """A new tensor of the graph's."""
        return super().make_allocation(name, _said(device), *rest, **options)  # type: ignore[misc]

    def val_to_arg_str(self, s: Any, type_: Any = None) -> str:
        """An operator's argument."""
        return super().val_to_arg_str(_said(s), type_)  # type: ignore[misc]


def _said(value: Any) -> Any:
    return MANAGED if isinstance(value, torch.device) and value == LABEL else value


class PythonWrapper(_Ways, PythonWrapperCodegen):
    """The module that is written for a graph."""

    @staticmethod
    def create(
        is_subgraph: bool, subgraph_name: str | None, parent_wrapper: Any, partition_signatures: Any = None
    ) -> PythonWrapperCodegen:
        """For a graph, or for one in it."""
        if not is_subgraph:
            return PythonWrapper()
        assert subgraph_name is not None
        return SubgraphPythonWrapper(subgraph_name, parent_wrapper, partition_signatures)

    def write_header(self) -> None:
        """Names what stands for our kernels."""
        super().write_header()
        self.imports.writeline(f"from {kernel.__name__} import {kernel.compiled_kernel.__name__}")


class SubgraphPythonWrapper(_Ways, SubgraphPythonWrapperCodegen):
    """The functions in it that are written for graphs in the graph."""
