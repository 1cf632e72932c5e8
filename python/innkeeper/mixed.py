"""Operators that move CPU tensors: their lines on standard error, and their treatment by tracers."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from torch._guards import TracingContext
from torch._subclasses import fake_tensor

import torch
from innkeeper import _C
from innkeeper.report import format_bytes
from innkeeper.script import here
from innkeeper.torch_patches.patch import put
from torch import Tensor

_told: set[str] = set()


def set_moves(moves: bool) -> None:
    """Has operators move CPU tensors that stand beside managed ones, or refuse them."""
    _C.set_moves_cpu_tensors(moves)
    fake_tensor.FakeTensorMode.cache_clear()  # cached results depend on the earlier setting


def tell(operator: str, shape: list[int], size: int) -> None:
    """Names a place of the program whose operator moves a CPU tensor of this shape and these bytes."""
    place = here()
    if place in _told:
        return
    _told.add(place)
    name, bytes_moved = operator.removeprefix("aten::"), format_bytes(size)
    print(
        f"innkeeper: {place}: {name} moves a CPU tensor of {shape} ({bytes_moved}) to the device, and again "
        'when it has changed; .to("managed") moves it once, INNKEEPER_MIXED=refuse makes this an error',
        file=sys.stderr,
        flush=True,
    )


def _common_device(
    find: Callable[..., tuple[torch.device, bool]], func: Any, operands: Sequence[object]
) -> tuple[torch.device, bool]:
    """The device of an operator's result while PyTorch traces it without data.

    TorchDynamo breaks its graph at an operator that moves a CPU tensor. So the operator itself does the move,
    the gradient's way back and the write in place.
    """
    try:
        return find(func, operands)
    except RuntimeError as error:
        devices = {x.device for x in operands if isinstance(x, fake_tensor.FakeTensor)}
        managed = [device for device in devices if _C.is_managed(device)]
        others = {device.type for device in devices.difference(managed)}
        if not _C.moves_cpu_tensors() or len(managed) != 1 or others != {"cpu"}:
            raise
        if TracingContext.try_get() is None:
            return managed[0], False
        from torch._dynamo.exc import unimplemented  # loaded, since it traces

        shapes = [list(x.shape) for x in operands if isinstance(x, Tensor) and x.device.type == "cpu"]
        unimplemented(
            gb_type="Operator moves a CPU tensor",
            context=f"{func} with CPU tensors of {shapes} beside managed ones",
            explanation="The move happens when the operator runs, so the graph breaks there.",
            hints=['Move the tensor before the call with .to("managed").'],
            from_exc=error,
        )


_REFUSED = re.compile(
    r"Function (\w+) returned an invalid gradient at index (\d+) - expected device cpu but got"
)


def _explaining(run: Callable[..., Any]) -> Callable[..., Any]:
    """Autograd's ``run``, which says more where a CPU tensor would need a gradient that is on the device.

    An operator that moves a CPU tensor moves its gradient back. Where autograd is not the operator's own, in
    ``torch.func.grad`` and in an ``autograd.Function``, it has no place for that.
    """

    @functools.wraps(run)
    def run_backward(outputs: Sequence[Tensor], *rest: Any, **options: Any) -> Any:
        try:
            return run(outputs, *rest, **options)
        except RuntimeError as error:
            refused = _REFUSED.match(str(error))
            if refused is None or not _C.moves_cpu_tensors():
                raise
            function = refused[1]
            shapes = sorted(_shapes_of_gradients(outputs, function, int(refused[2])))
            raise RuntimeError(
                f"{function} takes a CPU tensor of shape {' or '.join(map(str, shapes)) or 'unknown'} that "
                "requires a gradient beside managed tensors, and autograd has no place there to move its "
                "gradient back (torch.func and autograd.Function are such places): move the tensor before "
                'the call with .to("managed"), through which gradients flow'
            ) from error

    return run_backward


def _shapes_of_gradients(outputs: Sequence[Tensor], function: str, index: int) -> set[tuple[int, ...]]:
    """Shapes of the gradients that nodes of this name pass to their ``index``-th input on the CPU."""
    todo = [x.grad_fn for x in outputs if isinstance(x, Tensor) and x.grad_fn is not None]
    seen, shapes = set(todo), set()
    while todo:
        node = todo.pop()
        if node.name() == function and index < len(node.next_functions):
            after, number = node.next_functions[index]
            if after is not None:
                shapes.add(tuple(after._input_metadata[number].shape))
        fresh = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= fresh
        todo.extend(fresh)
    return shapes


def install() -> None:
    """Has operators tell, and tracers and autograd know that they move. Called once, by the import."""
    _C.set_mixed_notice(tell)
    run_backward = _explaining(torch.autograd.graph._engine_run_backward)
    for module in ("torch.autograd", "torch.autograd.graph"):
        put(f"{module}._engine_run_backward", run_backward)
    find = functools.partial(_common_device, fake_tensor.FakeTensor._find_common_device)
    put("torch._subclasses.fake_tensor.FakeTensor._find_common_device", staticmethod(find))
