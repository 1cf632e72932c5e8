"""Graphs for Inductor that say another device, the label, where the program says ``managed``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_any, tree_leaves, tree_map

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from torch import fx

HOSTS = torch.device("cpu", 1)  # the label where the host's kernels are those of every node that computes
MANAGED = torch.device(DEVICE, 0)


def gpus() -> list[str]:
    """The nodes that compute with kernels of their own, not the host's."""
    return [node.name for node in _C.nodes() if node.computes and not node.host_kernels]


def is_managed(value: Any) -> bool:
    """Whether it is a managed tensor, or names the device."""
    if isinstance(value, torch.Tensor):
        return value.device.type == DEVICE
    return isinstance(value, torch.device) and value.type == DEVICE


def has_managed(graph: fx.GraphModule) -> bool:
    """Whether tensors or devices of the graph, or of graphs in it, are managed."""
    return any(tree_any(is_managed, known) for known in _known_of(graph))


def other_devices(graph: fx.GraphModule) -> set[str]:
    """Where else than on managed and on the CPU the graph, or graphs in it, have tensors."""
    found = {x.device.type for x in tree_leaves(list(_known_of(graph))) if isinstance(x, torch.Tensor)}
    return found - {DEVICE, "cpu", "meta"}


def _known_of(graph: fx.GraphModule) -> Iterator[Any]:
    for module in graph.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                yield node.args, node.kwargs, node.meta.get("val"), node.meta.get("example_value")


def has_managed_constants(graph: fx.GraphModule) -> bool:
    """Whether the graph has managed tensors in itself: Inductor would read them when it compiles."""
    return any(
        is_managed(_attribute(module, node.target))
        for module in graph.modules()
        if isinstance(module, fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "get_attr"
    )


def labelled(graph: fx.GraphModule, label: torch.device) -> fx.GraphModule:
    """A copy of a graph of ATen's operators, with the label; of the graphs in it too."""
    made = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    made.meta = dict(graph.meta)
    relabel = _once_each(lambda value: _relabel(value, label))
    for node in list(made.graph.nodes):
        _bring_operands(node, label)
    for node in made.graph.nodes:
        node.args, node.kwargs = tree_map(relabel, node.args), tree_map(relabel, node.kwargs)
        node.meta = node.meta | {
            key: tree_map(relabel, node.meta[key]) for key in _VALUES if key in node.meta
        }
        inner = _attribute(made, node.target) if node.op == "get_attr" else None
        if isinstance(inner, fx.GraphModule):
            setattr(made, node.target, labelled(inner, label))
    made.recompile()
    return made


# Meta entries of a node's result, and of the operands of a graph within the graph.
_VALUES = ("val", "eager_input_vals")


def _bring_operands(node: fx.Node, label: torch.device) -> None:
    """Copies a CPU tensor that stands beside managed ones there first, as GPUs do with numbers and indices.

    Of two devices of one type PyTorch takes the first for a result where both operands are numbers.
    """
    if node.op != "call_function" or node.target in _COPIES or not is_managed(node.meta.get("val")):
        return
    operands = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]
    if not any(is_managed(each.meta["val"]) for each in operands):
        return
    for each in operands:
        if each.meta["val"].device.type == "cpu":
            with node.graph.inserting_before(node):
                copied = node.graph.call_function(torch.ops.prims.device_put.default, (each, label))
            copied.meta["val"] = each.meta["val"].to(label)
            node.replace_input_with(each, copied)


_COPIES = {
    torch.ops.aten.copy.default,
    torch.ops.aten.copy_.default,
    torch.ops.aten._to_copy.default,
    torch.ops.prims.device_put.default,
}


def labelled_inputs(inputs: Sequence[Any], label: torch.device) -> list[Any]:
    """Fake tensors, numbers and symbols, with the label."""
    return [_relabel(each, label) for each in inputs]


def _relabel(value: Any, label: torch.device) -> Any:
    if isinstance(value, torch.device):
        return label if value.type == DEVICE else value
    if not isinstance(value, FakeTensor) or value.device.type != DEVICE:
        return value
    size, stride, offset = value.size(), value.stride(), value.storage_offset()
    known: dict[str, Any] = {"dtype": value.dtype, "device": label}
    with value.fake_mode:
        if any(isinstance(each, int) and each == 0 for each in (offset, *size)):
            return torch.empty_strided(size, stride, **known)
        # By where it begins Inductor sees whether a kernel may read 16 bytes at once.
        last = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        return torch.empty(offset + last + 1, **known).as_strided(size, stride, offset)


def _once_each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same answer for the same object."""
    known: dict[int, tuple[Any, Any]] = {}

    def ask(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return function(value)
        if id(value) not in known:
            known[id(value)] = (value, function(value))
        return known[id(value)][1]

    return ask


def _attribute(module: Any, path: Any) -> Any:
    for name in str(path).split("."):
        module = getattr(module, name, None)
    return module
