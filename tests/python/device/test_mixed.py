"""CPU tensors together with managed ones: operators move them, and the bits are those of moving by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import innkeeper
import pytest
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch
from torch import Tensor, nn

M = "managed"

# (m, c): `m` brings a tensor to the device, `c` leaves one on the CPU. The results are the CPU's.
Calls = Callable[[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], object]
X, Y, SQUARE = torch.arange(1.0, 4.0), torch.tensor([3.0, -1.0, 2.0]), torch.arange(9.0).view(3, 3) - 4
WHERE, INDEX = torch.tensor([True, False, True]), torch.tensor([2, 0, 2])

SAME: dict[str, Calls] = {
    "add": lambda m, c: m(X) + c(Y),
    "add, the other way round": lambda m, c: c(X) + m(Y),
    "matmul": lambda m, c: m(SQUARE) @ c(SQUARE),
    "cat": lambda m, c: torch.cat([c(X), m(Y), c(Y)]),
    "stack": lambda m, c: torch.stack([m(X), c(Y)], 1),
    "where": lambda m, c: torch.where(c(WHERE), m(X), c(Y)),
    "index of the CPU": lambda m, c: m(SQUARE)[c(INDEX)],
    "index of the device": lambda m, c: c(SQUARE)[m(INDEX)],
    "gather": lambda m, c: m(SQUARE).gather(1, c(INDEX.view(3, 1))),
    "masked fill": lambda m, c: m(X).masked_fill(c(WHERE), 9.0),
    "cross entropy": lambda m, c: F.cross_entropy(m(SQUARE), c(INDEX), weight=c(X)),
    "mse": lambda m, c: F.mse_loss(m(X), c(Y)),
    "embedding": lambda m, c: F.embedding(c(INDEX), m(SQUARE)),
    "einsum": lambda m, c: torch.einsum("ij,jk,k->i", m(SQUARE), c(SQUARE), c(X)),
    "conv": lambda m, c: F.conv1d(m(SQUARE.view(1, 3, 3)), c(torch.ones(2, 3, 2)), c(torch.ones(2))),
    "layer norm": lambda m, c: F.layer_norm(m(SQUARE), (3,), c(X), c(Y)),
    "integers and floats": lambda m, c: m(X) * c(INDEX),
    "strided": lambda m, c: m(SQUARE) + c(SQUARE).t(),
    "complex": lambda m, c: m(torch.complex(X, Y)) * c(torch.complex(Y, X)).conj(),
    "broadcast": lambda m, c: m(SQUARE) + c(X[:1]),
    "equal": lambda m, c: torch.equal(m(X), c(X)) and torch.allclose(c(X), m(X)),
    "attention": lambda m, c: F.scaled_dot_product_attention(
        m(SQUARE.view(1, 3, 3)), c(SQUARE.view(1, 3, 3)), c(SQUARE.view(1, 3, 3)), attn_mask=c(SQUARE)
    ),
    "inner": lambda m, c: torch.inner(m(X), c(Y)),
    "take along": lambda m, c: torch.take_along_dim(c(SQUARE), m(INDEX.view(3, 1)), 1),
    "quantile": lambda m, c: torch.quantile(m(X), c(torch.tensor([0.1, 0.5]))),
    "short-time spectrum": lambda m, c: torch.stft(
        m(torch.arange(16.0)), 4, window=c(torch.hann_window(4)), return_complex=True
    ),
    "several products": lambda m, c: torch.linalg.multi_dot([m(SQUARE), c(SQUARE), c(X)]),
    "a grid": lambda m, c: torch.meshgrid(m(X), c(Y), indexing="ij"),
    "cartesian product": lambda m, c: torch.cartesian_prod(c(X), m(Y)),
    "rms norm": lambda m, c: F.rms_norm(m(SQUARE), (3,), c(X)),
    "ctc loss": lambda m, c: F.ctc_loss(
        c(SQUARE.view(3, 1, 3)).log_softmax(-1),
        m(torch.tensor([[1, 2]])),
        torch.tensor([3]),
        torch.tensor([2]),
    ),
    "sparse of the CPU": lambda m, c: torch.sparse.mm(c(SQUARE).to_sparse(), m(SQUARE)),
    "sparse of the device": lambda m, c: torch.sparse.mm(m(SQUARE).to_sparse(), c(SQUARE)),
    "foreach": lambda m, c: torch._foreach_mul([m(X), m(Y)], [c(Y), c(X)]),
    "several results": lambda m, c: torch.lerp(m(X), c(Y), c(X)).sort().values,
}


def same(got: object, expected: object) -> bool:
    if isinstance(expected, (list, tuple)):
        return all(same(a, b) for a, b in zip(got, expected, strict=True))  # type: ignore[call-overload]
    if not isinstance(expected, Tensor):
        return got == expected
    assert isinstance(got, Tensor) and got.device.type == M, got
    return torch.equal(got.cpu(), expected) and got.dtype == expected.dtype


@pytest.mark.parametrize("case", SAME)
def test_operators_give_what_moving_by_hand_gives(case: str):
    call = SAME[case]
    by_hand = call(lambda x: x.to(M), lambda x: x.to(M))
    mixed = call(lambda x: x.to(M), lambda x: x.clone())
    expected = call(lambda x: x, lambda x: x)
    assert same(mixed, expected)
    assert same(by_hand, expected)


def test_a_cpu_tensor_that_is_written_stays_on_the_cpu():
    x = torch.zeros(4, 3)
    kept, row = x, x[1]
    row.add_(torch.ones(3, device=M))
    x[0] = torch.full((3,), 5.0, device=M)
    x[:, 2].mul_(torch.full((4,), 2.0, device=M))
    x[x > 4] = torch.full((), 7.0, device=M)
    x.index_add_(0, torch.tensor([3]), torch.ones(1, 3, device=M))
    assert x is kept and x.device.type == "cpu"
    assert x.tolist() == [[7, 7, 7], [1, 1, 2], [0, 0, 0], [1, 1, 1]]
    out = torch.empty(0)
    assert torch.add(X.to(M), Y, out=out) is out
    assert out.tolist() == (X + Y).tolist()
    version = x._version
    x.add_(torch.ones(3, device=M))
    assert x._version == version + 1


@torch.inference_mode()
def test_so_it_is_for_operators_called_without_autograd():
    """Without autograd nothing above the kernels returns the operand that was written."""
    x = torch.zeros(3)
    two, places = torch.full((3,), 2.0, device=M), torch.arange(3)
    for call in (
        lambda: torch.ops.aten.add_.Tensor(x, two),
        lambda: torch.ops.aten.index_add_.default(x, 0, places, two),
        lambda: torch.ops.aten.addcmul_.default(x, two, two),
        lambda: torch.ops.aten.lerp_.Scalar(x, two, 0.5),
        lambda: torch.ops.aten.hypot_.default(x, two * 0),
        lambda: torch.ops.aten.mul.out(x, two, out=x),
    ):
        returned = call()
        assert returned.device.type == "cpu" and returned.data_ptr() == x.data_ptr()
    assert x.tolist() == [10, 10, 10]


def test_an_operator_that_fails_leaves_what_it_was_to_write():
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="shape"):
        x.add_(torch.ones(2, 3, device=M))
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(4, device=M))
    assert x.tolist() == [0, 0, 0]


# Gradients.


def gradients(device: str, make: Callable[[str, Tensor, nn.Module], Tensor]) -> list[Tensor]:
    torch.manual_seed(0)
    net, w = nn.Linear(3, 3), torch.randn(4, 3, requires_grad=True)
    make(device, w, net.to(device)).backward()
    found = [w.grad, *(parameter.grad for parameter in net.parameters())]
    assert all(each is not None for each in found)
    assert w.grad is not None and w.grad.device.type == "cpu"
    return [each.cpu() for each in found if each is not None]


def repeated(device: str, w: Tensor, net: nn.Module) -> Tensor:
    total = net(w).sum()
    for n in range(3):
        total = total + (net(w * n) + w).square().mean()
    return total


GRADIENTS: dict[str, Callable[[str, Tensor, nn.Module], Tensor]] = {
    "of a leaf": lambda device, w, net: net(w).square().sum(),
    "of what the CPU made": lambda device, w, net: net((w * 2).tanh()).square().sum(),
    "of both devices": lambda device, w, net: net(w).square().sum() + w.square().sum(),
    "of the CPU first": lambda device, w, net: w.square().sum() + net(w).square().sum(),
    "of a value that both use": lambda device, w, net: (h := w.sin()).square().sum() + net(h).sum(),
    "through a copy": lambda device, w, net: net(w).cpu().add(w).square().sum(),
    "many times": repeated,
    "of a view": lambda device, w, net: net(w[1:]).square().sum() + net(w.view(4, 3)[:2]).sum(),
    "checkpointed": lambda device, w, net: checkpoint(
        lambda x: net(x).relu() + w, w * 1.0, use_reentrant=False
    ).sum(),  # type: ignore[union-attr]
    "in place on the CPU": lambda device, w, net: (w * 1.0).add_(net(w)).square().sum(),
    "in place on a view of the CPU": lambda device, w, net: in_place_on_view(w, net),
}


def in_place_on_view(w: Tensor, net: nn.Module) -> Tensor:
    h = w * 1.0
    h[1].mul_(net(w[1]))
    return h.square().sum()


@pytest.mark.parametrize("case", GRADIENTS)
def test_a_cpu_tensor_has_its_gradient_on_the_cpu(case: str):
    for got, expected in zip(gradients(M, GRADIENTS[case]), gradients("cpu", GRADIENTS[case]), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


def test_hooks_see_a_gradient_of_the_tensor_s_own_device():
    w, y = torch.randn(3, requires_grad=True), torch.randn(3, device=M, requires_grad=True)
    seen = []
    w.register_hook(lambda gradient: seen.append(gradient.device.type))
    h = w * 2
    h.retain_grad()
    (h * y).sum().backward()
    (w * y).sum().backward()
    w.register_hook(lambda gradient: gradient * 2)
    (w * y).sum().backward()
    assert seen == ["cpu"] * 3
    assert h.grad is not None and h.grad.device.type == "cpu"
    assert w.grad is not None
    torch.testing.assert_close(w.grad, y.detach().cpu() * 5)


def test_gradients_of_gradients():
    def second(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        w, y = torch.randn(3, requires_grad=True), torch.randn(3).to(device).requires_grad_()
        (first,) = torch.autograd.grad(((w * y) ** 3).sum(), w, create_graph=True)
        assert first.device.type == "cpu"
        first.square().sum().backward()
        assert w.grad is not None and y.grad is not None
        return [first.detach(), w.grad, y.grad.cpu()]

    for got, expected in zip(second(M), second("cpu"), strict=True):
        torch.testing.assert_close(got, expected)


def test_a_cpu_parameter_is_trained_and_nothing_piles_up():
    def trained(device: str) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        scale, net = nn.Parameter(torch.ones(3)), nn.Linear(3, 3).to(device)
        optimizer = torch.optim.AdamW([scale, *net.parameters()], lr=0.1, foreach=False)
        for _ in range(20):
            optimizer.zero_grad()
            (net(SQUARE.to(device)) * scale).square().sum().backward()
            optimizer.step()
        return scale.detach(), net.weight.detach().cpu()

    for got, expected in zip(trained(M), trained("cpu"), strict=True):
        torch.testing.assert_close(got, expected)
    w = torch.ones(3, requires_grad=True)
    for _ in range(50):
        (w * torch.ones(3, device=M)).sum().backward()
    assert w._backward_hooks is None
    gc.collect()


def test_gradients_follow_a_tensor_to_another_device():
    layer = nn.Linear(3, 3).to(M)
    layer(torch.randn(2, 3)).sum().backward()
    layer.cpu()
    layer.zero_grad()
    layer(torch.randn(2, 3)).sum().backward()
    assert {p.grad.device.type for p in layer.parameters()} == {"cpu"}
    other = nn.Linear(3, 3)
    (other.weight * torch.ones(3, 3, device=M)).sum().backward()
    other.to(M).zero_grad()
    other(torch.randn(2, 3)).sum().backward()
    assert {p.grad.device.type for p in other.parameters()} == {M}


@pytest.mark.parametrize("also_on_cpu", [False, True])
def test_a_hook_that_comes_after_the_forward(also_on_cpu: bool):
    w = torch.ones(3, requires_grad=True)
    loss = (w * torch.ones(3, device=M)).sum().cpu()
    if also_on_cpu:
        loss = loss + (w * 2).sum()
    seen: list[str] = []
    w.register_hook(lambda gradient: seen.append(gradient.device.type))
    w.register_hook(lambda gradient: None).remove()
    loss.backward()
    assert seen == ["cpu"] and w.grad is not None and w.grad.device.type == "cpu"
    assert w.grad.tolist() == [3.0 if also_on_cpu else 1.0] * 3


def test_threads_have_gradients_of_their_own():
    def work(n: int) -> bool:
        w = torch.full((3,), float(n), requires_grad=True)
        x = torch.ones(3, device=M)
        for _ in range(100):
            w.grad = None
            ((w * x).sum().cpu() + (w * w).sum()).backward()
            if w.grad is None or w.grad.tolist() != [1.0 + 2 * n] * 3:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_values_that_are_put_at_indices_have_gradients():
    at = torch.tensor([0, 2])
    for device_of_x, device_of_values in ((M, "cpu"), ("cpu", M)):
        values = torch.ones(2, device=device_of_values, requires_grad=True)
        x = torch.zeros(3, device=device_of_x)
        x[at] = values * 2
        (x * 3).sum().backward()
        assert values.grad is not None and values.grad.device == values.device
        assert values.grad.tolist() == [6, 6] and x.device.type == device_of_x


def test_lists_of_mixed_tensors_have_gradients():
    w, m = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, device=M, requires_grad=True)
    first, second = torch._foreach_mul([w, m], [m, w])
    (first.sum().cpu() + second.sum().cpu() + (w * w).sum()).backward()
    assert w.grad is not None and w.grad.tolist() == [6, 6, 6] and w.grad.device.type == "cpu"
    assert m.grad is not None and m.grad.tolist() == [2, 2, 2] and m.grad.device.type == M
    w.grad = None
    (torch._foreach_mul([w, m], [m, w])[0].sum().cpu() + (w * w).sum()).backward()
    assert w.grad.tolist() == [4, 4, 4]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_a_mask(causal: bool):
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    found = F.scaled_dot_product_attention(q.to(M), k, v, is_causal=causal)
    assert torch.equal(found.cpu(), expected)


# Messages, and the setting.


def test_each_place_is_told_once_with_its_bytes(capfd: pytest.CaptureFixture[str]):
    torch.managed.empty_cache()  # Drops copies of X and Y.
    innkeeper.manager().reset_stats()
    for _ in range(3):
        X.to(M) + Y  # The message names this line.
    X.to(M) * SQUARE
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "test_mixed.py:" in said[0] and "add moves a CPU tensor of [3] (12 B)" in said[0]
    assert "mul moves a CPU tensor of [3, 3] (36 B)" in said[1]
    assert innkeeper.stats()["moved_from_cpu"] == 12 + 36
    innkeeper.manager().reset_stats()
    assert innkeeper.stats()["moved_from_cpu"] == 0
    X.to(M) + torch.tensor(1.0)  # a number
    X.to(M) + Y.to(M)
    assert innkeeper.stats()["moved_from_cpu"] == 0


def test_refusing_is_a_setting(configure: Callable[..., None]):
    configure("sim:1MiB,host:64MiB", mixed="refuse")
    with pytest.raises(RuntimeError, match="same device"):
        X.to(M) + Y
    configure("sim:1MiB,host:64MiB", mixed="move")
    assert (X.to(M) + Y).tolist() == (X + Y).tolist()
    with pytest.raises(ValueError, match='mixed is "move" or "refuse"; got \'both\''):
        configure("sim:1MiB,host:64MiB", mixed="both")


def test_a_tight_device_moves_operands_and_keeps_its_bits(configure: Callable[[str], None]):
    configure("sim:1x96KiB,host:64MiB")
    kept = []
    for n in range(32):
        kept.append(torch.full((4096,), float(n), device=M) + torch.arange(4096.0))
    for n, each in enumerate(kept):
        assert torch.equal(each.cpu(), torch.arange(4096.0) + n)
