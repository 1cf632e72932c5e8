"""Quantized tensors and models on the managed device: the CPU's bits, moved and evicted like any others."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import innkeeper
import pytest
from budget_fixture import Squeeze, flood
from processes import RunProgram

import torch
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
KiB = 1 << 10
DTYPES = (torch.qint8, torch.quint8, torch.qint32)


def floats(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def per_tensor(x: Tensor, dtype: torch.dtype = torch.qint8) -> Tensor:
    return torch.quantize_per_tensor(x, 0.05, 3, dtype)


def per_channel(x: Tensor, axis: int = 0, dtype: torch.dtype = torch.qint8) -> Tensor:
    scales = torch.linspace(0.02, 0.1, x.size(axis), dtype=torch.float64, device=x.device)
    zero_points = torch.arange(x.size(axis), device=x.device)
    return torch.quantize_per_channel(x, scales, zero_points, axis, dtype)


QUANTIZED: dict[str, Callable[[Tensor], Tensor]] = {
    **{str(dtype): lambda x, dtype=dtype: per_tensor(x, dtype) for dtype in DTYPES},
    "tensors as parameters": lambda x: torch.quantize_per_tensor(
        x, torch.tensor(0.1, device=x.device), torch.tensor(2, device=x.device), torch.quint8
    ),
    "dynamic": lambda x: torch.quantize_per_tensor_dynamic(x, torch.quint8, False),
    "per channel": per_channel,
    "per channel, the last": lambda x: per_channel(x, 1, torch.quint8),
    "of integers": lambda x: torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.5, 1),
    "of integers, per channel": lambda x: torch._make_per_channel_quantized_tensor(
        x.to(torch.int8), torch.ones(4, device=x.device), torch.zeros(4, device=x.device, dtype=torch.int), 0
    ),
    "four bits": lambda x: torch.quantize_per_channel(
        x, torch.full((4,), 0.5, device=x.device), torch.zeros(4, device=x.device), 0, torch.quint4x2
    ),
    "empty": lambda x: per_tensor(x[:0]),
}
USES: dict[str, Callable[[Tensor], Any]] = {
    "dequantize": lambda q: q.dequantize(),
    "integers": lambda q: q.int_repr(),
    "scale": lambda q: (q.q_scale(), q.q_zero_point(), q.qscheme()),
    "rows": lambda q: q[1:3].dequantize(),
    "columns": lambda q: q[:, ::2].int_repr(),
    "transposed": lambda q: q.t().contiguous().int_repr(),
    "view": lambda q: q.view(-1).unsqueeze(0).squeeze(0).dequantize(),
    "reshape": lambda q: q.t().reshape(-1).dequantize(),
    "clone": lambda q: q.clone().int_repr(),
    "copy": lambda q: torch.empty_like(q).copy_(q).int_repr(),
    "copy of floats": lambda q: torch.empty_like(q).copy_(q.dequantize() * 2).int_repr(),
    "broadcast copy": lambda q: torch.empty_like(q).copy_(q[:1]).int_repr(),
    "relu": lambda q: torch.relu(q).dequantize(),
    "relu in place": lambda q: q.clone().relu_().dequantize(),
    "cat": lambda q: torch.cat([q, q]).dequantize(),
    "fill": lambda q: q.clone().fill_(0.5).dequantize(),
    "resize": lambda q: q.clone().resize_(2, 32).int_repr(),
    "resize and grow": lambda q: q.clone().resize_(8, 64)[:4].int_repr(),
    "write a row": lambda q: write_a_row(q.clone()),
    "equal": lambda q: (torch.equal(q, q.clone()), torch.equal(q, torch.relu(q))),
    "compare": lambda q: q > 0.1,
    "max": lambda q: q.max().dequantize(),
    "sort": lambda q: q.sort()[1],
    "mean": lambda q: q.mean(1).dequantize(),
    "index": lambda q: q[torch.tensor([2, 0], device=q.device)].dequantize(),
    "add": lambda q: torch.ops.quantized.add(q, q, 0.1, 1).int_repr(),
    "add_relu": lambda q: torch.ops.quantized.add_relu(q, q, 0.1, 1).dequantize(),
    "mul": lambda q: torch.ops.quantized.mul(q, q, 0.1, 1).dequantize(),
    "printed": lambda q: str(q.cpu()),
}


def write_a_row(q: Tensor) -> Tensor:
    q[1] = q[2]
    return q.dequantize()


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, Tensor):
        assert found.device.type == "managed" and found.dtype == expected.dtype
        assert found.shape == expected.shape and found.stride() == expected.stride()
        if expected.is_quantized:
            assert found.qscheme() == expected.qscheme()
            found, expected = found.cpu().int_repr(), expected.int_repr()
        assert torch.equal(found.cpu(), expected)
    else:
        assert found == expected


@pytest.mark.parametrize("make", QUANTIZED.values(), ids=QUANTIZED.keys())
def test_it_has_the_cpus_bits_here_there_and_back(make: Callable[[Tensor], Tensor], squeeze: Squeeze):
    x = floats(4, 64)
    expected = make(x)
    made, sent = make(x.to("managed")), expected.to("managed")
    squeeze(64 * KiB)
    flood(128 * KiB)
    for q in (made, sent):
        assert_same(q, expected)
        assert_same(q.dequantize(), expected.dequantize())
        assert torch.equal(q.cpu().dequantize(), expected.dequantize())
        if q.qscheme() == torch.per_tensor_affine:
            assert (q.q_scale(), q.q_zero_point()) == (expected.q_scale(), expected.q_zero_point())
        else:
            assert_same(q.q_per_channel_scales(), expected.q_per_channel_scales())
            assert_same(q.q_per_channel_zero_points(), expected.q_per_channel_zero_points())
            assert q.q_per_channel_axis() == expected.q_per_channel_axis()
        innkeeper.evict(q)


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_operators(use: Callable[[Tensor], Any]):
    x = floats(4, 64)
    assert_same(use(per_tensor(x).to("managed")), use(per_tensor(x)))


def test_copies_go_both_ways():
    managed, plain = per_tensor(floats(4, 8)).to("managed"), per_tensor(floats(4, 8) * 2)
    managed.copy_(plain)
    assert torch.equal(managed.cpu().int_repr(), plain.int_repr())
    plain[:2].copy_(managed[2:])
    assert torch.equal(plain[:2].int_repr(), managed.cpu()[2:].int_repr())
    managed.copy_(floats(4, 8))
    assert torch.equal(managed.cpu().int_repr(), per_tensor(floats(4, 8)).int_repr())
    plain.copy_(floats(4, 8).to("managed"))
    assert torch.equal(plain.int_repr(), per_tensor(floats(4, 8)).int_repr())
    for source, target, line in (
        (plain, floats(4, 8).to("managed"), "non-quantized Tensor is not allowed, please use dequantize"),
        (per_tensor(floats(4, 8), torch.quint8), managed, "same dtype"),
        (per_channel(floats(4, 8)), managed, "same qscheme"),
    ):
        with pytest.raises(RuntimeError, match=line):
            target.copy_(source)


def test_scales_are_the_tensors_own():
    scales = torch.full((4,), 0.1, dtype=torch.float64, device="managed")
    zero_points = torch.zeros(4, dtype=torch.int64, device="managed")
    q = torch.quantize_per_channel(floats(4, 8).to("managed"), scales, zero_points, 0, torch.qint8)
    before = q.dequantize()
    scales.mul_(2)
    assert torch.equal(q.dequantize(), before)


def saved(x: Any) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize(
    "way", [lambda q: pickle.loads(pickle.dumps(q)), saved, copy.deepcopy], ids=["pickle", "save", "deepcopy"]
)
@pytest.mark.parametrize("make", [per_tensor, per_channel])
def test_it_is_pickled_saved_and_copied(way: Callable[[Tensor], Tensor], make: Callable[[Tensor], Tensor]):
    x = floats(4, 8)
    assert_same(way(make(x).to("managed")), make(x))
    assert_same(way(make(x).to("managed")[1:3]), way(make(x)[1:3]))


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.relu, self.linear = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Linear(8 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.conv(self.quant(x)))
        return self.dequant(self.linear(y.flatten(1)))


def statically_quantized() -> nn.Module:
    torch.manual_seed(2)
    network = Network().eval()
    network.qconfig = torch.ao.quantization.get_default_qconfig("x86")
    prepared = torch.ao.quantization.prepare(network)
    prepared(floats(4, 3, 8, 8))
    return torch.ao.quantization.convert(prepared)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        super().__init__()
        self.rnn, self.linear = kind(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.rnn(x)[0])


def dynamically_quantized(kind: type[nn.LSTM | nn.GRU]) -> nn.Module:
    torch.manual_seed(2)
    return torch.ao.quantization.quantize_dynamic(Recurrent(kind), {nn.Linear, kind}, dtype=torch.qint8)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "static": (statically_quantized, (4, 3, 8, 8)),
    "dynamic LSTM": (lambda: dynamically_quantized(nn.LSTM), (5, 2, 8)),
    "dynamic GRU": (lambda: dynamically_quantized(nn.GRU), (5, 2, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str):
    make, shape = MODELS[name]
    x = floats(*shape)
    with torch.no_grad():
        assert torch.equal(make().to("managed")(x.to("managed")).cpu(), make()(x))


def test_a_model_that_is_trained_with_quantization_in_mind():
    def trained(device: str) -> list[Tensor]:
        torch.manual_seed(2)
        network = Network().train()
        network.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        network = torch.ao.quantization.prepare_qat(network).to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            network(floats(4, 3, 8, 8).to(device)).square().mean().backward()
            optimizer.step()
        converted = torch.ao.quantization.convert(network.eval().cpu())
        return [p.detach() for p in network.parameters()] + [converted(floats(4, 3, 8, 8))]

    for found, expected in zip(trained("managed"), trained("cpu"), strict=True):
        assert torch.equal(found, expected)


def test_what_needs_data_says_so(run_python: RunProgram):
    program = """
import torch, innkeeper
try:
    torch.quantize_per_tensor(torch.ones(3, device="managed"), 0.1, 0, torch.qint8)
except NotImplementedError as error:
    print(error)
"""
    import os

    before = os.environ.get("INNKEEPER_SIM")
    os.environ["INNKEEPER_SIM"] = "data=off"
    try:
        done = run_python("-W", "ignore", "-c", program)
    finally:
        os.environ.pop("INNKEEPER_SIM") if before is None else os.environ.update(INNKEEPER_SIM=before)
    assert "aten::quantize_per_tensor needs data, which INNKEEPER_SIM has off" in done.stdout, done.stderr
