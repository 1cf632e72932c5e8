"""Floating-point operations in records, compared with PyTorch's own counter and with formulas."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import innkeeper
import pytest
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import torch
from torch import Tensor, nn

Work = Callable[[str], Any]
"""Does what is counted, on a device."""


@pytest.fixture
def counted(configure: Callable[[str], None], tmp_path: Path) -> Callable[[Work], float]:
    """Operations in the record of a program on a simulated GPU."""
    configure("sim:512MiB,host:1GiB")

    def count(work: Work) -> float:
        torch.manual_seed(0)
        with innkeeper.record(tmp_path / "record"):
            work("managed")
        return sum(float(found) for found in re.findall(r" =([\d.e+]+),", (tmp_path / "record").read_text()))

    return count


def by_pytorch(work: Work) -> float:
    torch.manual_seed(0)
    with FlopCounterMode(display=False) as counter:
        work("cpu")
    return float(counter.get_total_flops())


def train(build: Callable[[], nn.Module], *shape: int, grad: bool = True) -> Work:
    """A forward and a backward pass; with ``grad`` the input has a gradient, too."""

    def run(device: str) -> None:
        model = build().to(device)
        x = torch.randn(*shape, device=device, requires_grad=grad)
        model(x).square().mean().backward()

    return run


def attend(causal: bool, grad: bool, value_width: int = 16) -> Work:
    def run(device: str) -> None:
        q, k = (torch.randn(2, 4, length, 16, device=device, requires_grad=grad) for length in (24, 40))
        v = torch.randn(2, 4, 40, value_width, device=device, requires_grad=grad)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        if grad:
            out.sum().backward()

    return run


def with_products(device: str) -> None:
    a, b = torch.randn(3, 8, 16, device=device), torch.randn(3, 16, 4, device=device)
    c = torch.randn(3, 8, 4, device=device)
    a @ b, torch.baddbmm(c, a, b), torch.addmm(c[0], a[0], b[0]), a[0] @ b[0], a @ b[0]
    F.linear(a, b[0].t(), c[0, 0])


class Block(nn.Module):
    """A transformer's block, of modules with counting rules of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


KNOWN: dict[str, Work] = {
    "products": with_products,
    "linear": train(lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), 16, 32),
    "an input without a gradient": train(lambda: nn.Linear(32, 64), 16, 32, grad=False),
    "conv": train(lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 1)), 2, 3, 16, 16),
    "the first conv": train(lambda: nn.Conv2d(3, 8, 3), 2, 3, 16, 16, grad=False),
    "conv 1d, 3d": train(
        lambda: nn.Sequential(
            nn.Conv1d(4, 6, 3), nn.Unflatten(1, (1, 6)), nn.Unflatten(3, (7, 2)), nn.Conv3d(1, 2, 2)
        ),
        2,
        4,
        16,
    ),
    "transposed": train(lambda: nn.ConvTranspose2d(6, 4, 4, 2, 1), 2, 6, 8, 8),
    "grouped, forward": lambda device: nn.Conv2d(8, 16, 3, groups=4).to(device)(
        torch.randn(2, 8, 9, 9, device=device)
    ),
    "a transformer's block": train(Block, 2, 24, 32),
}


# Operations that PyTorch's counter omits: attention by the CPU's kernel, two products and five backward.
LEFT_OUT = {"a transformer's block": (2 + 5) * (2 * 2 * 4 * 24 * 24 * 8)}


@pytest.mark.parametrize("name", KNOWN)
def test_as_many_as_pytorch_counts(counted: Callable[[Work], float], name: str) -> None:
    expected = by_pytorch(KNOWN[name]) + LEFT_OUT.get(name, 0)
    assert counted(KNOWN[name]) == pytest.approx(expected, rel=0.01)


def test_the_precision_of_what_is_counted(configure: Callable[[str], None], tmp_path: Path) -> None:
    """GPUs compute float32 products without tensor cores unless the program allows it; convolutions with."""
    configure("sim:512MiB,host:1GiB")

    def precision(work: Work) -> str:
        with innkeeper.record(tmp_path / "record"):
            work("managed")
        found = re.findall(r" =[1-9]\d*,\d+,\d+(?:,(\w+))?", (tmp_path / "record").read_text())
        assert len(found) == 1
        return str(found[0]) or "bf16"

    def product(dtype: torch.dtype) -> Work:
        return lambda device: torch.ones(4, 4, device=device, dtype=dtype).mm(
            torch.ones(4, 4, device=device, dtype=dtype)
        )

    conv = lambda device: F.conv1d(torch.ones(1, 2, 8, device=device), torch.ones(2, 2, 3, device=device))  # noqa: E731
    for dtype, name in (
        (torch.float64, "fp64"),
        (torch.float32, "fp32"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
    ):
        assert precision(product(dtype)) == name
    assert precision(conv) == "tf32"
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.backends.cudnn.conv.fp32_precision = "ieee"
        assert precision(product(torch.float32)) == "tf32"
        assert precision(conv) == "fp32"
    finally:
        torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = before


def test_products_in_place(counted: Callable[[Work], float]) -> None:
    def in_place(device: str) -> None:
        a, b = torch.randn(3, 8, 16, device=device), torch.randn(3, 16, 4, device=device)
        c = torch.randn(3, 8, 4, device=device)
        c.baddbmm_(a, b)
        c[0].addmm_(a[0], b[0])
        torch.addbmm(c[0], a, b)

    assert counted(in_place) == (3 + 1 + 3) * 2 * 8 * 16 * 4


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_two_products_and_five_backward(counted: Callable[[Work], float], causal: bool) -> None:
    """PyTorch counts GPU kernels so; its counter has no rule for the CPU's kernel."""
    product = 2 * 2 * 4 * 24 * 40 * 16
    assert counted(attend(causal, grad=False)) == 2 * product
    assert counted(attend(causal, grad=True)) == (2 + 5) * product


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_networks(counted: Callable[[Work], float], kind: type[nn.RNNBase], packed: bool) -> None:
    """Each step uses each matrix once, and twice backward."""
    lengths = [7, 7, 7] if not packed else [7, 4, 2]

    def run(device: str) -> None:
        model = kind(12, 8, 2, bidirectional=True).to(device)
        x: Any = torch.randn(7, 3, 12, device=device, requires_grad=True)
        if packed:
            x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
        out = model(x)[0]
        (out.data if packed else out).square().mean().backward()

    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    matrices = 2 * gates * 8 * ((12 + 8) + (16 + 8))  # Two directions, two layers.
    assert counted(run) == pytest.approx(2 * 3 * sum(lengths) * matrices, rel=0.1)


def test_products_of_other_numbers(counted: Callable[[Work], float]) -> None:
    def integers(device: str) -> None:
        a, b = torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 24, dtype=torch.int8)
        torch._int_mm(a.to(device), b.to(device))

    assert counted(integers) == 2 * 32 * 16 * 24


def test_groups(counted: Callable[[Work], float]) -> None:
    offsets = torch.tensor([8, 16, 32], dtype=torch.int32)

    def rows(device: str) -> None:
        a = torch.randn(32, 16, device=device, dtype=torch.bfloat16)
        torch._grouped_mm(
            a, torch.randn(3, 16, 24, device=device, dtype=torch.bfloat16), offs=offsets.to(device)
        )

    def sums(device: str) -> None:
        a = torch.randn(16, 32, device=device, dtype=torch.bfloat16)
        torch._grouped_mm(
            a, torch.randn(32, 24, device=device, dtype=torch.bfloat16), offs=offsets.to(device)
        )

    assert counted(rows) == counted(sums) == 2 * 32 * 16 * 24
