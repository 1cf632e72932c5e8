"""Compiles the graphs that have managed tensors, by Inductor."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from torch._dynamo.backends.debugging import aot_eager
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.utils import BoxedBool
from torch.utils._triton import has_triton_package

import torch
from innkeeper import _C
from innkeeper.inductor import codegen, labels
from torch import fx

log = logging.getLogger("innkeeper")


def _settings(label: torch.device) -> dict[str, Any]:
    return {
        "freezing": False,  # freezing reads parameters at compile time
        "cpp_wrapper": False,  # the wrapper calls kernels by their addresses
        "triton.multi_kernel": 0,  # the choice among several kernels calls them by address, too
        "triton.autotune_at_compile_time": False,  # autotuning runs kernels on its own tensors
        "profile_bandwidth": False,  # profiling finds a kernel's callers by their frames
        # Used only by AOTInductor's packages, but part of every key of Inductor's caches. It separates a
        # graph from the same graph of the label's own device, and of managed on a machine with other nodes.
        "aot_inductor.metadata": {"managed": str(label)},
    }


def is_ours(graph: fx.GraphModule) -> bool:
    """Whether a graph of Dynamo's has managed tensors."""
    return labels.has_managed(graph)


def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], settings: dict[str, Any]) -> Any:
    """The replacement of a graph of Dynamo's. Its forward and its backward are compiled each."""
    label, why = _label()
    if others := labels.other_devices(graph):
        label, why = None, f"it has tensors on {', '.join(sorted(others))} beside managed ones"
    if label is None:
        _tell(graph, why)
        return aot_eager(graph, list(inputs))
    compile_one = functools.partial(_compile, label=label)
    return compile_fx(graph, inputs, inner_compile=compile_one, config_patches=settings | _settings(label))


def _compile(graph: fx.GraphModule, inputs: Sequence[Any], *, label: torch.device, **options: Any) -> Any:
    """One graph of ATen's operators."""
    if labels.has_managed_constants(graph):
        _tell(graph, "it has managed tensors as constants")
        return _Uncompiled(graph)
    options["cudagraphs"] = BoxedBool(False)  # a captured graph keeps addresses, and blocks move
    with codegen.writing(label):
        return compile_fx_inner(
            labels.labelled(graph, label), labels.labelled_inputs(inputs, label), **options
        )


def _label() -> tuple[torch.device | None, str]:
    """The label of managed in graphs: a device whose kernels all computing nodes run. Else the reason."""
    gpus = labels.gpus()
    if not gpus:
        return labels.HOSTS, ""
    if len(gpus) < sum(node.computes for node in _C.nodes()):
        return None, f"{', '.join(gpus)} and nodes without a GPU compute, and run other kernels"
    label = torch.device(gpus[0])
    if not has_triton_package():
        return None, f"{', '.join(gpus)} computes, whose kernels Triton compiles, and it is not installed"
    return label, ""


def _tell(graph: fx.GraphModule, why: str) -> None:
    count = len(graph.graph.nodes)
    log.info("torch.compile: a graph of %d operators runs without Inductor: %s", count, why)


class _Uncompiled:
    """The graph itself, with the calling convention of Inductor's output."""

    _boxed_call = True

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = graph

    def __call__(self, inputs: list[Any]) -> Any:
        """Runs the operators. Takes the list's elements out of it, so that they can be freed."""
        arguments = list(inputs)
        inputs.clear()
        return fx.Interpreter(self._graph).boxed_run(arguments)
