"""Inductor's output for ``managed``: its kernels for the label's device, called as operators.

Inductor finds its scheduler and its code generator by a device's type. For the label's type it finds those
of this module. They act while a graph for ``managed`` is compiled, and pass on to Inductor's own at all other
times.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from torch._inductor.codegen import common
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V

import torch
from innkeeper.inductor import kernel, launch
from innkeeper.inductor.labels import HOSTS, MANAGED
from innkeeper.torch_patches.patch import item, patch, put

_label: contextvars.ContextVar[torch.device | None] = contextvars.ContextVar(
    "innkeeper's label", default=None
)


@contextlib.contextmanager
def writing(label: torch.device) -> Iterator[None]:
    """For the graph with this label that is compiled meanwhile, by this thread."""
    common.init_backend_registration()
    for kind in {HOSTS.type, label.type}:
        _register(kind)
    _label_local_buffers()
    token = _label.set(label)
    try:
        yield
    finally:
        _label.reset(token)


@functools.cache
def _register(kind: str) -> None:
    theirs = common.device_codegens[kind]

    class Wrapper(theirs.wrapper_codegen):  # type: ignore[name-defined]
        @staticmethod
        def create(*arguments: Any, **options: Any) -> Any:
            return (PythonWrapper if _label.get() else theirs.wrapper_codegen).create(*arguments, **options)

    def schedule(scheduler: Any) -> Any:
        ours = kind == HOSTS.type and _label.get() == HOSTS
        return (Scheduling if ours else theirs.scheduling)(scheduler)

    ours = common.DeviceCodegen(schedule, Wrapper, theirs.cpp_wrapper_codegen, theirs.fx_wrapper_codegen)
    put(
        f"torch._inductor.codegen.common.device_codegens[{kind}]",
        ours,
        item(common.device_codegens, kind),
    )


@functools.cache
def _label_local_buffers() -> None:
    """Has buffers within a template's kernel say the label, as others do: Inductor has them say ``cpu``."""

    def labelling(define: Any) -> Any:
        @functools.wraps(define)
        def define_labelled(self: Any, name: str, *rest: Any, **options: Any) -> Any:
            text = define(self, name, *rest, **options)
            if _label.get() == HOSTS:
                self.local_buffers[name].layout.device = HOSTS
            return text

        return define_labelled

    for name in ("define_buffer", "define_stack_allocated_buffer"):
        patch(f"torch._inductor.codegen.cpp_template_kernel.CppTemplateKernel.{name}", labelling)


class Scheduling(CppScheduling):
    """Inductor's, whose kernels have an entry for the operator beside their own."""

    def define_kernel(self, src_code: str, nodes: Any, kernel_args: Any = None) -> str:
        """As Inductor's, with the entry behind the kernel."""
        arguments = self.kernel_group.args if kernel_args is None else kernel_args
        _, _, types = arguments.cpp_argdefs()
        return super().define_kernel(src_code + _entry(types), nodes, kernel_args)


def _entry(types: list[str]) -> str:
    """C++ for a kernel's entry, by its arguments' types: the operator passes read tensors first."""
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


_TRITONS = "async_compile.triton("


class _Ways:
    """Difference from Inductor's modules: these say managed where the graph has the label."""

    def define_kernel(self, kernel_name: str, kernel_body: str, *rest: Any, **options: Any) -> None:
        """Makes the module call the operator instead of the kernel."""
        if kernel.ENTRY in kernel_body:
            kernel_body = f"{kernel.compiled_kernel.__name__}({kernel_body.rstrip()})"
        elif kernel_body.startswith(_TRITONS):
            kernel_body = kernel_body.replace(
                _TRITONS, f"{launch.launched_kernel.__name__}(async_compile, ", 1
            )
        super().define_kernel(kernel_name, kernel_body, *rest, **options)  # type: ignore[misc]

    def generate_kernel_call(self, kernel_name: str, call_args: Any, **options: Any) -> None:
        """A kernel's launch also says which of its operands it does not write."""
        if options.get("triton", True):
            call_args = [*call_args, f"read={_read_alone(call_args)}"]
        super().generate_kernel_call(kernel_name, call_args, **options)  # type: ignore[misc]

    def codegen_device_guard_enter(self, *which: Any, **options: Any) -> None:
        """None: each operator runs where it is placed."""

    def codegen_device_guard_exit(self) -> None:
        """No guard was entered, but the code that trims the module's end stops at this line."""
        self.writeline("pass")  # type: ignore[attr-defined]

    def make_allocation(self, name: str, device: torch.device, *rest: Any, **options: Any) -> str:
        """A new tensor of the graph's."""
        return super().make_allocation(name, _said(device), *rest, **options)  # type: ignore[misc]

    def val_to_arg_str(self, s: Any, type_: Any = None) -> str:
        """An operator's argument."""
        return super().val_to_arg_str(_said(s), type_)  # type: ignore[misc]


def _said(value: Any) -> Any:
    return MANAGED if isinstance(value, torch.device) and value == _label.get() else value


_VIEW = re.compile(r"reinterpret_tensor\((\w+),.*")  # call that makes a view of a buffer


def _read_alone(call_args: Iterable[Any]) -> tuple[int, ...]:
    """Positions, among a kernel's arguments, of the buffers that the scheduled node only reads."""
    scheduled = V.graph.scheduler.current_node
    if scheduled is None:
        return ()
    written = set()
    for buffer in scheduled.get_outputs():
        written |= {buffer.get_name(), *buffer.get_mutations()}
    names = [_VIEW.sub(r"\1", each) if isinstance(each, str) else "" for each in call_args]
    return tuple(
        i for i, name in enumerate(names) if name not in written and V.graph.try_get_buffer(name) is not None
    )


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
        """Imports the replacements of the kernels."""
        super().write_header()
        for module, name in ((kernel, kernel.compiled_kernel), (launch, launch.launched_kernel)):
            self.imports.writeline(f"from {module.__name__} import {name.__name__}")


class SubgraphPythonWrapper(_Ways, SubgraphPythonWrapperCodegen):
    """The functions in it that are written for graphs in the graph."""
