"""Operators that PyTorch composes by device have the CPU's bits: dropout, attention, RNNs, convolutions."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch.nn.functional as F

import torch
from torch import Tensor, nn


def on_both(build: Callable[[], nn.Module], run: Callable[[nn.Module, str], Tensor]) -> list[list[Tensor]]:
    """Runs a model made from one seed on the CPU and on managed; the output and the gradients of each."""
    results = []
    for device in ("cpu", "managed"):
        torch.manual_seed(3)
        model = build().to(device)
        torch.manual_seed(4)
        output = run(model, device)
        output.float().pow(2).sum().backward()
        results.append(
            [output.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)]
        )
    return results


def assert_same_bits(results: list[list[Tensor]]) -> None:
    """Both lists hold the same tensors, bit for bit, and more than one."""
    expected, actual = results
    assert len(expected) == len(actual)
    for index, (a, b) in enumerate(zip(expected, actual, strict=True)):
        assert a.dtype == b.dtype
        assert torch.equal(a, b), (index, (a - b).abs().max())


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("p", [0.0, 0.1, 0.15, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_has_the_cpus_bits(p: float, dtype: torch.dtype):
    data = torch.randn(50, 21)
    results = []
    for device in ("cpu", "managed"):
        x = data.clone().to(device, dtype).requires_grad_()
        torch.manual_seed(8)
        y = F.dropout(x, p)
        y.sum().backward()
        results.append([y.detach().cpu(), x.grad.cpu()])
    assert_same_bits(results)
    assert F.dropout(x, p, training=False) is x


@pytest.mark.parametrize("train", [True, False, None])
def test_native_dropout_has_the_cpus_bits(train: bool | None):
    data = torch.randn(50, 21)
    results = []
    for device in ("cpu", "managed"):
        x = data.clone().to(device).requires_grad_()
        torch.manual_seed(8)
        y, mask = torch.native_dropout(x, 0.15, train)
        y.sum().backward()
        results.append([y.detach().cpu(), mask.cpu(), x.grad.cpu()])
    assert_same_bits(results)


def test_dropout_without_autograd():
    data = torch.randn(50, 21)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            torch.manual_seed(8)
            expected = F.dropout(data, 0.15)
            torch.manual_seed(8)
            assert torch.equal(F.dropout(data.to("managed"), 0.15).cpu(), expected)


# ---------------------------------------------------------------- attention


@pytest.mark.parametrize(("causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_attention_has_the_cpus_bits(causal: bool, masked: bool, dropout: float):
    data = torch.randn(3, 2, 4, 33, 16)
    results = []
    for device in ("cpu", "managed"):
        q, k, v = (x.clone().to(device).requires_grad_() for x in data)
        mask = torch.ones(33, 33, dtype=torch.bool).tril().to(device) if masked else None
        torch.manual_seed(5)
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        y.pow(2).sum().backward()
        results.append([y.detach().cpu(), q.grad.cpu(), k.grad.cpu(), v.grad.cpu()])
    assert_same_bits(results)


def test_multihead_attention_and_encoder():
    def run(model: nn.Module, device: str) -> Tensor:
        return model(torch.linspace(-1, 1, 2 * 7 * 16).view(2, 7, 16).to(device))

    assert_same_bits(on_both(lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), run))


# ---------------------------------------------------------------- RNNs


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rnns_have_the_cpus_bits(kind: type[nn.RNNBase], bidirectional: bool, dtype: torch.dtype):
    x = torch.randn(5, 3, 6, dtype=dtype)

    def build() -> nn.Module:
        return kind(
            6, 8, 2, dropout=0.25, bidirectional=bidirectional, batch_first=bidirectional, dtype=dtype
        )

    assert_same_bits(on_both(build, lambda model, device: model(x.to(device))[0]))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [(7, 4, 4, 1), (4, 4, 4), (5,), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packed_rnns_have_the_cpus_bits(
    kind: type[nn.RNNBase], bidirectional: bool, lengths: tuple[int, ...], dtype: torch.dtype
):
    sequences = [torch.randn(length, 6, dtype=dtype) for length in lengths]

    def run(model: nn.Module, device: str) -> Tensor:
        packed = nn.utils.rnn.pack_sequence(sequences).to(device)
        output, hidden = model(packed)
        last = hidden[0] if isinstance(hidden, tuple) else hidden
        return nn.utils.rnn.pad_packed_sequence(output)[0].sum() + last.sum()

    assert_same_bits(on_both(lambda: kind(6, 8, 2, bidirectional=bidirectional, dtype=dtype), run))


def test_lstm_with_projections_without_biases_and_without_onednn():
    x = torch.randn(5, 3, 6)
    run = lambda model, device: model(x.to(device))[0]  # noqa: E731
    assert_same_bits(on_both(lambda: nn.LSTM(6, 8, 2, proj_size=4), run))
    assert_same_bits(on_both(lambda: nn.LSTM(6, 8, 2, bias=False), run))
    with torch.backends.mkldnn.flags(enabled=False):
        assert_same_bits(on_both(lambda: nn.LSTM(6, 8, 2), run))


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_have_the_cpus_bits(kind: type[nn.RNNCellBase], bias: bool):
    x = torch.randn(3, 6)

    def run(model: nn.Module, device: str) -> Tensor:
        state = model(x.to(device))
        state = model(x.to(device), state)
        return state[0] if isinstance(state, tuple) else state

    assert_same_bits(on_both(lambda: kind(6, 8, bias=bias), run))


def test_an_lstm_without_gradients():
    torch.manual_seed(0)
    model = nn.LSTM(6, 8).eval()
    x = torch.randn(5, 3, 6)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            expected = model(x)[0]
            assert torch.equal(copy.deepcopy(model).to("managed")(x.to("managed"))[0].cpu(), expected)


# ---------------------------------------------------------------- convolution and losses


@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_train(transposed: bool):
    x = torch.randn(2, 4, 9, 9)
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    assert_same_bits(
        on_both(lambda: kind(4, 6, 3, stride=2, padding=1, groups=2), lambda m, device: m(x.to(device)))
    )


def test_overrideable_convolution():
    x, w, b = torch.randn(2, 4, 9, 9), torch.randn(6, 4, 3, 3), torch.randn(6)
    tail = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    arguments = [t.to("managed").requires_grad_() for t in (x, w, b)]
    y = torch.ops.aten.convolution_overrideable(*arguments, *tail)
    assert torch.equal(y.detach().cpu(), F.conv2d(x, w, b))
    grads = torch.ops.aten.convolution_backward_overrideable(
        y.detach(), *(a.detach() for a in arguments[:2]), *tail, [True] * 3
    )
    y.backward(y.detach())
    for grad, argument in zip(grads, arguments, strict=True):
        assert torch.equal(grad.cpu(), argument.grad.cpu())


def test_ctc_loss():
    log_probs = torch.randn(12, 2, 5).log_softmax(2)
    targets = torch.randint(1, 5, (2, 4))
    lengths = (torch.full((2,), 12), torch.full((2,), 4))
    expected = F.ctc_loss(log_probs, targets, *lengths)
    assert torch.equal(F.ctc_loss(log_probs.to("managed"), targets.to("managed"), *lengths).cpu(), expected)


class Head(nn.Module):
    """The end of a language model, in a lower precision, with PyTorch's own choice of how to accumulate."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 50, dtype=dtype)

    def forward(self, x: Tensor, target: Tensor, reduction: str) -> Tensor:
        options = nn.modules.linear_cross_entropy_options.LinearCrossEntropyOptions()
        return F.linear_cross_entropy(
            x, self.linear.weight, target, linear_bias=self.linear.bias, reduction=reduction, options=options
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_cross_entropy_accumulates_as_on_the_cpu(dtype: torch.dtype, reduction: str):
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(6)).to(dtype)
    target = torch.arange(64) % 50
    assert_same_bits(
        on_both(
            lambda: Head(dtype),
            lambda head, device: head(inputs.to(device), target.to(device), reduction),
        )
    )


# ---------------------------------------------------------------- autocast


def test_autocast_casts_as_on_cuda():
    x = torch.randn(4, 4, device="managed", requires_grad=True)
    assert torch.get_autocast_dtype("managed") == torch.float16
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("managed", dtype=dtype):
            assert torch.is_autocast_enabled("managed")
            low = x @ x
            assert low.dtype == dtype
            assert F.linear(x, x).dtype == dtype
            assert F.conv1d(x[None], x[:, :, None]).dtype == dtype
            assert F.softmax(low, -1).dtype == torch.float32
            assert low.exp().dtype == torch.float32
            assert low.sum().dtype == torch.float32
            assert (low + x).dtype == torch.float32
            assert torch.addcmul(x, low, low).dtype == torch.float32
            assert F.layer_norm(low, (4,)).dtype == torch.float32
            assert F.scaled_dot_product_attention(*[x.view(1, 1, 4, 4)] * 3).dtype == dtype
            assert low.norm().dtype == torch.float32
            with torch.autocast("managed", enabled=False):
                assert (x @ x).dtype == torch.float32
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
    low.sum().backward()
    assert x.grad.dtype == torch.float32


def test_autocast_of_the_cpu_or_cuda_leaves_managed_alone():
    x = torch.randn(4, 4, device="managed")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32


def test_an_lstm_trains_under_autocast():
    model = nn.LSTM(6, 8, 2).to("managed")
    scaler = torch.amp.GradScaler("managed")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("managed"):
        output, _ = model(torch.randn(5, 3, 6, device="managed"))
    assert output.dtype == torch.float16
    scaler.scale(output.float().pow(2).mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(torch.isfinite(p.grad.cpu()).all() for p in model.parameters())


def test_no_operator_that_pytorch_composes_has_lost_its_gradient() -> None:
    # A kernel of ours under autograd's hides PyTorch's composition, whose parts have the gradients.
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    lost = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and has(name, "CompositeImplicitAutograd")
        and has(name, "PrivateUse1")
        and not has(name, "AutogradPrivateUse1")
        and not (has(name, "CPU") and has(name, "Autograd"))
    ]
    assert lost == []
