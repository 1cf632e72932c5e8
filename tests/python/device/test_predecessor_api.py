"""Promises of the predecessor's description: automatic allocation, transparent moves, moves by memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import innkeeper
from innkeeper import ManagedModule, ManagedTensor

import torch
from torch import nn

MIB = 1 << 20


def test_automatically_allocates_tensors_on_the_gpus():
    x = ManagedTensor.create(torch.randn(2, 3))
    assert innkeeper.where(x)[0] in ("sim:0", "sim:1")


def test_transparently_moves_tensors_from_the_cpu_to_the_gpu_and_back():
    x = torch.randn(2, 3)
    y = ManagedTensor.wrap(x)
    assert torch.equal(y.cpu(), x)
    innkeeper.evict(y)  # Moves it to host memory.
    assert innkeeper.where(y) == ["host"]
    assert torch.equal((y + y).cpu(), x + x)  # The sum moves it back.
    assert innkeeper.where(y)[0].startswith("sim:")


def test_moves_tensors_according_to_memory_availability():
    with innkeeper.on("sim:0"):
        tensors = [torch.full((MIB,), float(n), device="managed") for n in range(8)]  # 32 of 16 MiB.
    places = {innkeeper.where(tensor)[0] for tensor in tensors}
    assert "host" in places and places != {"host"}
    assert [tensor[0].item() for tensor in tensors] == [float(n) for n in range(8)]


def test_the_class_has_the_api_of_torch_tensor_and_the_manager_is_shared():
    x = ManagedTensor([3.0, 1.0, 2.0])
    assert x.sort().values.tolist() == [1, 2, 3] and x.max().item() == 3 and x.shape == (3,)
    public = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    assert public <= set(dir(ManagedTensor))
    assert innkeeper.DeviceManager() is innkeeper.manager()


def test_different_device_tensors():
    # """x on one device and y on another: the sum is at y's device, and x is moved there."""
    with innkeeper.on("sim:0"):
        x = torch.randn(2, 3, device="managed")
    with innkeeper.on("sim:1"):
        y = torch.randn(200, 3, device="managed")[:2]
    z = x + y
    assert innkeeper.where(z) == ["sim:1"] and "sim:1" in innkeeper.where(x)
    assert torch.equal(z.cpu(), x.cpu() + y.cpu())


def test_modules_wrap_their_parameters_with_the_tensor_class():
    class Net(ManagedModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(10, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).sum()

    for module in (Net(), ManagedModule(nn.Linear(10, 1)), ManagedModule.from_module(nn.Linear(10, 1))):
        assert all(isinstance(parameter, ManagedTensor) for parameter in module.parameters())
        module(torch.randn(4, 10)).sum().backward()
        assert all(isinstance(parameter.grad, ManagedTensor) for parameter in module.parameters())


def test_many_experiments_run_without_a_word_about_gpus():
    def experiment(number: int, meet: Callable[[], object] = int) -> tuple[float, str]:
        with innkeeper.experiment():
            meet()
            torch.managed.manual_seed(number)
            x = torch.randn(64, 64, device="managed")
            return (x @ x).sum().item(), innkeeper.where(x)[0]

    with ThreadPoolExecutor(4) as pool:
        four_at_once = threading.Barrier(4).wait
        together = list(pool.map(experiment, range(16), [four_at_once] * 16))
    assert {home for _, home in together} == {"sim:0", "sim:1"}
    assert [total for total, _ in together] == [experiment(number)[0] for number in range(16)]
