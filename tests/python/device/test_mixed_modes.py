"""CPU tensors together with managed ones in autocast, tracing, torch.func, checkpoints, hooks and threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import torch
from torch import Tensor, nn


def managed(x: Tensor) -> Tensor:
    return x.to("managed")


def same(x: Tensor) -> Tensor:
    return x


def gradients(step: Callable[..., Tensor], prepare: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The loss and the gradients of a step whose input and target are on the CPU before ``prepare``."""
    torch.manual_seed(3)
    layer = nn.Linear(4, 4)
    x, target = torch.randn(3, 4, requires_grad=True), torch.rand(3, 4)
    layer.to("managed")
    loss = step(layer, prepare(x), prepare(target))
    loss.backward()
    return [loss.detach().cpu(), x.grad, *(parameter.grad.cpu() for parameter in layer.parameters())]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) and x.device == y.device for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_what_it_would_after_the_move(dtype: torch.dtype) -> None:
    def step(layer: nn.Linear, x: Tensor, target: Tensor) -> Tensor:
        with torch.autocast("managed", dtype=dtype):
            y = layer(x)
            assert y.dtype == dtype
            parts = torch.cat([y, target])
            assert parts.dtype == torch.float32
            loss = F.mse_loss(y, target) + F.softmax(target * y, -1).pow(2).sum() + parts.sum()
            return loss + torch.addcmul(target, y, y).sum() + F.linear(target, layer.weight, layer.bias).sum()

    assert equal(gradients(step, same), gradients(step, managed))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_graph_breaks_where_an_operator_moves(backend: str) -> None:
    torch._dynamo.reset()

    def body(layer: nn.Linear, x: Tensor, target: Tensor) -> Tensor:
        hidden = torch.zeros(3, 4)
        return F.mse_loss((layer(x) + hidden).relu(), target)

    compiled = torch.compile(body, backend=backend)
    assert equal(gradients(compiled, same), gradients(body, managed))
    written = torch.ones(3)
    result = torch.compile(lambda a, b: a.add_(b) * 2, backend=backend)(
        written, torch.ones(3, device="managed")
    )
    assert written.tolist() == [2, 2, 2] and result.tolist() == [4, 4, 4]


def test_a_graph_that_must_be_whole_says_what_to_move() -> None:
    torch._dynamo.reset()
    whole = torch.compile(lambda a, b: a + b, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r'\.to\("managed"\)[\s\S]*CPU tensors of \[\[3\]\]'):
        whole(torch.ones(3), torch.ones(3, device="managed"))


def test_without_data_the_result_is_managed() -> None:
    with FakeTensorMode():
        x = torch.ones(3) + torch.ones(3, device="managed")
    assert x.device.type == "managed" and x.shape == (3,)


def test_refused_tensors_are_refused_by_tracers_too(refuse_mixed: None) -> None:
    torch._dynamo.reset()
    a, b = torch.ones(3), torch.ones(3, device="managed")
    with pytest.raises(Exception, match="same device"):
        torch.compile(lambda a, b: a + b, backend="eager")(a, b)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="same device"):
        _ = mode.from_tensor(a) + mode.from_tensor(b)


W = torch.tensor([1.0, 2.0, 3.0, 4.0])

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "grad of a managed tensor": lambda w, x: torch.func.grad(lambda w: (w * x).sum())(w),
    "vmap over a CPU tensor": lambda w, x: torch.func.vmap(lambda x: x * w)(torch.stack([x, x])),
    "vmap of grad": lambda w, x: torch.func.vmap(
        torch.func.grad(lambda w, x: (w * x).sin().sum()), in_dims=(None, 0)
    )(w, torch.stack([x, x])),
    "jvp": lambda w, x: torch.func.jvp(lambda w: (w * x).sin(), (w,), (w,))[1],
    "jvp of a CPU tensor": lambda w, x: torch.func.jvp(lambda x: (x * w).sin(), (x,), (x,))[1],
    "hessian": lambda w, x: torch.func.hessian(lambda w: (w * x).sin().sum())(w),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_torch_func_gives_what_it_gives_on_the_cpu(case: str) -> None:
    x = torch.tensor([0.5, -1.0, 2.0, 0.25])
    result = FUNCTIONS[case](W.to("managed"), x)
    assert result.device.type == "managed" and torch.equal(result.cpu(), FUNCTIONS[case](W, x))


class Product(torch.autograd.Function):
    """A function whose gradients are on the device of its operands' product."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, b = ctx.saved_tensors
        return grads[0] * b, grads[0] * a


def test_where_a_gradient_cannot_be_moved_back_the_error_says_which_and_what_to_do() -> None:
    w = W.to("managed").requires_grad_()
    x = torch.ones(4, requires_grad=True)
    calls: list[Callable[[], object]] = [
        lambda: torch.func.grad(lambda x: (x * w).sum())(torch.ones(4)),
        lambda: torch.func.jacrev(lambda x: x * w)(torch.ones(4)),
        lambda: Product.apply(x, w).sum().backward(),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r'CPU tensor of shape \(4,\)[\s\S]*\.to\("managed"\)'):
            call()
    Product.apply(x.to("managed"), w).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, W)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_move_again(reentrant: bool) -> None:
    def body(layer: nn.Linear, x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss((layer(x) + torch.full((3, 4), 0.5)).tanh(), target)

    def step(layer: nn.Linear, x: Tensor, target: Tensor) -> Tensor:
        return checkpoint(body, layer, x, target, use_reentrant=reentrant)

    assert equal(gradients(step, same), gradients(body, managed))


def test_hooks_of_saved_tensors_see_them() -> None:
    def body(layer: nn.Linear, x: Tensor, target: Tensor) -> Tensor:
        return ((layer(x) * target).sin() * target).sum()

    expected = gradients(body, managed)
    seen: list[str] = []

    def pack(x: Tensor) -> Tensor:
        seen.append(x.device.type)
        return x.clone()

    for hooks in (saved_tensors_hooks(pack, same), save_on_cpu()):
        with hooks:
            assert equal(gradients(body, same), expected)
    assert "managed" in seen


def test_threads_move_the_same_tensor() -> None:
    x = torch.arange(1000.0)
    weights = [torch.full((1000,), float(n), device="managed") for n in range(8)]

    def work(n: int) -> bool:
        return all(torch.equal((weights[n] * x).cpu(), x * n) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
