"""Notes on CUDA semantics, block by block: "cuda" is "managed", and GPU numbers are simulated nodes."""

from __future__ import annotations

import argparse
import warnings

import innkeeper
import pytest
from processes import RunProgram
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

import torch

managed = torch.managed  # type: ignore[attr-defined]


def test_placement_by_context():
    with innkeeper.on("sim:0"):
        x = managed.FloatTensor(1).fill_(1)
        y = torch.FloatTensor([2]).managed()
    assert x.get_device() == y.get_device() == 0
    with innkeeper.on("sim:1"):
        a = managed.FloatTensor(1).fill_(3)
        b = torch.FloatTensor([4]).managed()
        assert innkeeper.where(a) == innkeeper.where(b) == ["sim:1"]
        c = a + b
        assert innkeeper.where(c) == ["sim:1"] and c.item() == 7
        z = x + y  # The result is at its operands' node in any context.
        assert innkeeper.where(z) == ["sim:0"] and z.item() == 3
        # Even within a context another node can be named.
        with innkeeper.on("sim:0"):
            d = torch.randn(2).managed()
        assert innkeeper.where(d) == ["sim:0"]


@pytest.mark.usefixtures("refuse_mixed")
def test_copies_are_the_exception_to_the_same_device_rule():
    x = torch.zeros(3, device="managed")
    y = torch.arange(3.0)
    x.copy_(y)
    assert x.tolist() == [0, 1, 2]
    y.zero_().copy_(x)
    assert y.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="same device"):
        x.add_(y)


def test_empty_cache_gives_memory_back_and_keeps_tensors():
    x = torch.ones(1000, device="managed")
    torch.ones(1 << 20, device="managed")
    managed.empty_cache()
    assert x.sum().item() == 1000


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="PyTorch Example")
    parser.add_argument("--disable-managed", action="store_true", help="Disable the managed device")
    args = parser.parse_args(arguments)
    args.managed = not args.disable_managed and managed.is_available()
    return args


@pytest.mark.parametrize(("arguments", "kind"), [((), "managed"), (("--disable-managed",), "cpu")])
def test_device_agnostic_code(arguments: tuple[str, ...], kind: str):
    args = parse(*arguments)
    x = torch.Tensor(8, 42).fill_(1)
    net = torch.nn.Linear(42, 2)
    if args.managed:
        x = x.managed()
        net.managed()
    assert net(x).device.type == kind


def test_a_default_type_for_a_data_loader():
    dtype = managed.FloatTensor
    for i, (x,) in enumerate(DataLoader(TensorDataset(torch.arange(6).view(3, 2)), batch_size=1)):
        x = Variable(x.type(dtype))
        assert x.type() == "torch.managed.FloatTensor" and isinstance(x, dtype)
        assert x.device.type == "managed" and x.tolist() == [[2 * i, 2 * i + 1]]
    assert torch.ones(2).type("torch.managed.LongTensor").type() == "torch.managed.LongTensor"


def test_the_environment_says_which_devices_there_are(run_python: RunProgram):
    script = "import innkeeper; print(*innkeeper.manager().nodes)"
    assert run_python("-c", script, nodes="sim:3x1MiB,host:64MiB").stdout.split() == [
        "sim:0",
        "sim:1",
        "sim:2",
        "host",
    ]
    assert run_python("-c", script, nodes="host:64MiB").stdout.split() == ["host"]


def test_contexts_end():
    def current() -> list[str]:
        return innkeeper.where(torch.ones(1, device="managed"))

    with innkeeper.on("sim:0"):
        assert current() == ["sim:0"]
        with innkeeper.on("sim:1"):
            assert current() == ["sim:1"]
        assert current() == ["sim:0"]
    with managed.device(0):
        assert managed.current_device() == 0


def test_new_keeps_type_and_device():
    x_cpu = torch.FloatTensor(1)
    x_gpu = managed.FloatTensor(1)
    x_cpu_long = torch.LongTensor(1)
    y_cpu = x_cpu.new(8, 10, 10).fill_(0.3)
    y_gpu = x_gpu.new(x_gpu.size()).fill_(-5)
    y_cpu_long = x_cpu_long.new([[1, 2, 3]])
    assert y_cpu.shape == (8, 10, 10) and y_cpu.device.type == "cpu"
    assert y_gpu.tolist() == [-5] and y_gpu.device.type == "managed" and y_gpu.dtype == torch.float32
    assert y_cpu_long.tolist() == [[1, 2, 3]] and y_cpu_long.dtype == torch.int64


def test_ones_like_and_zeros_like_keep_the_device():
    x_cpu = torch.FloatTensor(1)
    x_gpu = managed.FloatTensor(1)
    y_cpu = torch.ones_like(x_cpu)
    y_gpu = torch.zeros_like(x_gpu)
    assert y_cpu.device.type == "cpu" and y_cpu.tolist() == [1]
    assert y_gpu.device.type == "managed" and y_gpu.tolist() == [0]


def test_pinned_memory_and_asynchronous_copies():
    x = torch.arange(1000.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and torch.equal(pinned, x)
    y = pinned.managed(non_blocking=True)
    z = pinned.to("managed", non_blocking=True)
    assert torch.equal((y + z).cpu(), 2 * x)
    back = y.to("cpu", non_blocking=True)
    managed.synchronize()
    assert torch.equal(back, x)


def test_a_data_loader_that_pins():
    data = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, (x, y) in enumerate(DataLoader(data, batch_size=5, pin_memory=True)):
            assert x.is_pinned() and y.is_pinned()
            x, y = x.to("managed", non_blocking=True), y.to("managed", non_blocking=True)
            assert y.tolist() == list(range(5 * i, 5 * i + 5)) and x.sum().item() == sum(
                range(10 * i, 10 * i + 10)
            )
