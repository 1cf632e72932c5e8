"""Where PyTorch chooses a kernel or a formula by device, managed chooses like the device it computes on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils._pytree import tree_leaves

import torch
from torch import Tensor, nn

Run = Callable[[str], Any]


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_same_bits(run: Run) -> None:
    found, expected = tree_leaves(run("managed")), tree_leaves(run("cpu"))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.device.type == "managed" and a.stride() == b.stride() and a.dtype == b.dtype
        assert torch.equal(a.detach().cpu(), b.detach())


# ---------------------------------------------------------------- group norm


FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
Way = Callable[[nn.Module, Tensor], Tensor]
WAYS: dict[str, Way] = {
    "eager": lambda model, x: model(x),
    "checkpointed": lambda model, x: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False),
    "aot_eager": lambda model, x: torch.compile(model, backend="aot_eager")(x),
}


def normed(device: str, way: Way, shape: tuple[int, ...], dtype: torch.dtype, channels_last: bool) -> Any:
    torch.manual_seed(0)
    norm = nn.GroupNorm(2, shape[1]).to(device, dtype)
    x = normal(*shape).to(dtype)
    if channels_last:
        x = x.contiguous(memory_format=FORMATS[x.dim()])
    x = x.to(device).requires_grad_()
    y = way(norm, x)
    y.square().sum().backward()
    return y, x.grad, norm.weight.grad, norm.bias.grad


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("shape", [(2, 8, 5, 5), (3, 4, 3, 5, 2), (2, 4, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm(shape: tuple[int, ...], dtype: torch.dtype, channels_last: bool):
    assert_same_bits(lambda device: normed(device, WAYS["eager"], shape, dtype, channels_last))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_group_norm_behind_what_keeps_for_its_backward(way: Way):
    torch._dynamo.reset()
    assert_same_bits(lambda device: normed(device, way, (2, 8, 5, 5), torch.float32, True))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "group norm": lambda: nn.GroupNorm(2, 4),
    "layer norm": lambda: nn.LayerNorm(6),
    "batch norm": lambda: nn.BatchNorm2d(4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())
def test_decompositions_of_norms(make: Callable[[], nn.Module], dtype: torch.dtype):
    def decomposed(device: str) -> Any:
        torch._dynamo.reset()
        layer = make().to(device, dtype)
        x = normal(3, 4, 5, 6).to(device, dtype).requires_grad_()
        y = torch.compile(layer, backend="aot_eager_decomp_partition")(x)
        y.square().sum().backward()
        return y, x.grad, [p.grad for p in layer.parameters()]

    assert_same_bits(decomposed)


def test_group_norm_in_transforms_and_twice():
    def gradients(device: str) -> Any:
        norm = nn.GroupNorm(2, 8).to(device)
        x = normal(2, 8, 5, 5).contiguous(memory_format=torch.channels_last).to(device)
        in_transform = torch.func.grad(lambda x: norm(x).square().sum())(x)
        x.requires_grad_()
        (once,) = torch.autograd.grad(norm(x).square().sum(), x, create_graph=True)
        once.square().sum().backward()
        return in_transform, once, x.grad

    assert_same_bits(gradients)


# ---------------------------------------------------------------- optimizers


CAPTURABLE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adadelta", "RMSprop", "Rprop")


def trained(device: str, name: str, **options: Any) -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    options = {key: value.to(device) if key == "lr" else value for key, value in options.items()}
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    for _ in range(3):
        optimizer.zero_grad()
        model(normal(4, 8).to(device)).square().sum().backward()
        optimizer.step()
    return list(model.parameters())


def allow_capturable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs it on the CPU too, for the comparison."""
    module = importlib.import_module(f"torch.optim.{name.removesuffix('W').lower()}")
    assert "managed" in module._get_capturable_supported_devices()
    monkeypatch.setattr(module, "_get_capturable_supported_devices", lambda *_, **__: ["managed", "cpu"])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_capturable_optimizers(name: str, foreach: bool, monkeypatch: pytest.MonkeyPatch):
    """A step that is a tensor on the device has formulas of its own, for accelerators alone."""
    allow_capturable(name, monkeypatch)
    assert_same_bits(lambda device: trained(device, name, capturable=True, foreach=foreach))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {}),
        ("AdamW", {"fused": True}),
        ("AdamW", {"capturable": True, "foreach": True}),
        ("SGD", {}),
        ("SGD", {"foreach": True}),
        ("SGD", {"fused": True}),
    ],
    ids=str,
)
def test_a_learning_rate_that_is_a_tensor(
    name: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
):
    allow_capturable("Adam", monkeypatch)
    assert_same_bits(lambda device: trained(device, name, lr=torch.tensor(0.01), **options))


def lamb(device: str) -> list[Tensor]:
    """timm's step of LAMB: numbers are tensors made on the device, and trust is chosen by where()."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8).to(device)
    state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
    for step in range(1, 4):
        model.zero_grad()
        model(normal(4, 8).to(device)).square().sum().backward()
        one = torch.tensor(1.0, device=device)
        total = torch.stack([p.grad.square().sum() for p in model.parameters()]).sum().sqrt_()
        clip = (total / 0.1).clamp_(min=1.0)
        with torch.no_grad():
            for p, (mean, square) in state.items():
                gradient = p.grad.div(clip)
                mean.mul_(0.9).add_(gradient, alpha=0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = (mean / (1 - 0.9**step)).div_((square.sqrt() / (1 - 0.999**step) ** 0.5).add_(1e-6))
                norms = p.norm(2.0), update.norm(2.0)
                ratio = torch.where(norms[0] > 0, torch.where(norms[1] > 0, norms[0] / norms[1], one), one)
                p.add_(update.mul_(torch.minimum(ratio, one)), alpha=-0.01)
    return list(model.parameters())


def test_lamb():
    assert_same_bits(lamb)


# ---------------------------------------------------------------- operators in Python


@torch.library.custom_op("innkeeper_test::scaled", mutates_args=(), device_types=("cpu", "cuda"))
def scaled(x: Tensor, by: float) -> Tensor:
    return torch.from_numpy(x.detach().numpy() * by)


@scaled.register_fake
def _(x: Tensor, by: float) -> Tensor:
    return torch.empty_like(x)


def _keep_factor(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.by = inputs[1]


scaled.register_autograd(
    lambda context, gradient: (scaled(gradient, context.by), None), setup_context=_keep_factor
)


@torch.library.custom_op("innkeeper_test::accumulated", mutates_args=("into",), device_types="cpu")
def accumulated(x: Tensor, into: Tensor) -> list[Tensor]:
    into += x
    return [into.clone(), x.clone()]


def custom(device: str, run: Callable[..., Any] = lambda f: f) -> Any:
    x = normal(4, 8).to(device).requires_grad_()
    into = torch.zeros(4, 8, device=device)
    y = run(lambda x: scaled(x, 1.5).tanh())(x)
    y.sum().backward()
    return y, x.grad, accumulated(y.detach(), into), into


def test_custom_operators_run_where_the_device_behind_has_them():
    assert_same_bits(custom)


def test_custom_operators_in_compiled_graphs():
    torch._dynamo.reset()
    assert_same_bits(lambda device: custom(device, lambda f: torch.compile(f, backend="aot_eager")))


# ---------------------------------------------------------------- linear algebra


DECOMPOSITIONS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "qr": lambda a, s: torch.linalg.qr(a),
    "svd": lambda a, s: torch.linalg.svd(a, full_matrices=False)[1],
    "eigh": lambda a, s: torch.linalg.eigh(s),
    "cholesky": lambda a, s: torch.linalg.cholesky(s),
    "lu": lambda a, s: torch.linalg.lu(a)[1:],
    "solve": lambda a, s: torch.linalg.solve(s, a),
    "inverse": lambda a, s: torch.linalg.inv(s),
    "determinant": lambda a, s: torch.linalg.slogdet(s),
    "pinv": lambda a, s: torch.linalg.pinv(s),
    "exponential": lambda a, s: torch.linalg.matrix_exp(a),
    "triangular": lambda a, s: torch.linalg.solve_triangular(s.triu(), a, upper=True),
    "norm": lambda a, s: torch.linalg.matrix_norm(a, 2),
}


@pytest.mark.parametrize("compute", DECOMPOSITIONS.values(), ids=DECOMPOSITIONS.keys())
def test_linear_algebra(compute: Callable[[Tensor, Tensor], Any]):
    def run(device: str) -> Any:
        a = normal(3, 40, 40).to(device).requires_grad_()
        results = tree_leaves(compute(a, a @ a.mT + 40 * torch.eye(40, device=device)))
        sum(each.abs().sum() for each in results).backward()
        return list(results), a.grad

    assert_same_bits(run)
