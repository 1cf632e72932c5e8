"""Compiles the graphs that have managed tensors, by Inductor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from torch._dynamo.backends.debugging import aot_eager
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.utils import BoxedBool

from innkeeper import _C
from innkeeper.inductor import codegen, labels
from torch import fx

log = logging.getLogger("innkeeper")

# Freezing reads parameters when it compiles, and a wrapper in C++ would enter kernels by their addresses.
_SETTINGS = {"freezing": False, "cpp_wrapper": False}


def is_ours(graph: fx.GraphModule) -> bool:
    """Whether a graph of Dynamo's has managed tensors."""
    return labels.has_managed(graph)


def compile_graph(graph: fx.GraphModule, inputs: Sequence[Any], settings: dict[str, Any]) -> Any:
    """What stands for a graph of Dynamo's. Its forward and its backward are compiled each."""
    if cards := _cards():  # asked before Inductor's cache is: what it keeps may come from a machine without
        _tell(graph, f"kernels are written for the host alone, and {', '.join(cards)} computes")
        return aot_eager(graph, list(inputs))
    return compile_fx(graph, inputs, inner_compile=_compile, config_patches=settings | _SETTINGS)


def _compile(graph: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """One graph of ATen's operators."""
    if labels.has_managed_constants(graph):
        _tell(graph, "it has managed tensors as constants")
        return _Uncompiled(graph)
    options["cudagraphs"] = BoxedBool(False)  # a captured graph keeps addresses, and blocks move
    with codegen.writing():
        return compile_fx_inner(labels.labelled(graph), labels.labelled_inputs(inputs), **options)


def _cards() -> list[str]:
    return [node.name for node in _C.nodes() if node.computes and node.kind not in ("host", "sim")]


def _tell(graph: fx.GraphModule, why: str) -> None:
    count = len(graph.graph.nodes)
    log.info("torch.compile: a graph of %d operators runs without Inductor: %s", count, why)


class _Uncompiled:
    """The graph itself, called as what Inductor makes is."""

    _boxed_call = True

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = graph

    def __call__(self, inputs: list[Any]) -> Any:
        """Runs the operators. Takes the list's elements out of it, so that they can be freed."""
        arguments = list(inputs)
        inputs.clear()
        return fx.Interpreter(self._graph).boxed_run(arguments)
