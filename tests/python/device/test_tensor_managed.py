"""The names of the package tensor-managed 0.1, in this process with one device and in programs by run --managed."""

# ruff: noqa: E501  (scripts in strings)
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import innkeeper
import pytest
from innkeeper.compat import tensor_managed
from managed_scripts import Scripts

import torch
from torch import nn

mt, dm = tensor_managed.ManagedTensor, tensor_managed.device_manager


@pytest.fixture
def settings() -> Iterator[None]:
    """Restores the manager's settings afterwards."""
    manager = innkeeper.manager()
    before = manager.retry_limit, manager.wait_time
    yield
    manager.retry_limit, manager.wait_time = before
    manager.reserve = 0.0


def test_tensors_move_where_they_meet_the_device() -> None:
    x, y = torch.randn(2, 3).as_subclass(mt), torch.randn(2, 3).as_subclass(mt)
    here = x + y
    assert type(here) is mt and here.device == dm.cpu_device == x.device
    there = y.cuda()
    assert type(there) is mt and there.device in dm.cuda_devices
    z = x + there
    assert type(z) is mt and z.device in dm.cuda_devices and x.device in dm.cuda_devices
    assert torch.equal(z.cpu(), here)
    assert type(torch.stack([here, here])) is mt
    plain = there + torch.ones(2, 3)
    assert type(plain) is mt and plain.device in dm.cuda_devices


def test_classes_and_their_instances() -> None:
    linear = tensor_managed.ManagedModule.from_module(nn.Linear(3, 1), tensor_cls=mt)
    assert isinstance(linear, tensor_managed.ManagedModule) and isinstance(linear, innkeeper.ManagedModule)
    assert isinstance(linear.weight, mt) and isinstance(linear.bias, mt)
    seen: list[torch.Size] = []
    assert linear.apply_(lambda tensor: seen.append(tensor.shape)) is linear and len(seen) == 2
    assert tensor_managed.ManagedModule(linear) is linear

    class Net(tensor_managed.ManagedModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(10, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).sum()

    net = Net().cuda()
    net.pin()
    assert net.linear.weight.pinned and net(torch.randn(10)).device in dm.cuda_devices
    net.unpin()


@pytest.mark.usefixtures("settings")
def test_the_manager_is_the_process_s() -> None:
    assert dm.devices == (torch.device("cpu"), torch.device("managed:0"))
    dm.reserved = 0.25
    assert dm.reserve == innkeeper.manager().reserve == dm.reserved == 0.25
    assert dm.budget("sim:0") == innkeeper.manager().nodes["sim:0"].capacity * 3 // 4
    with pytest.raises(ValueError, match="0 or more and less than 1: got 1"):
        dm.reserved = 1
    other = tensor_managed.DeviceManager(retry_limit=2, wait_time=0.01)
    assert (dm.retry_limit, dm.wait_time, innkeeper.manager().retry_limit) == (2, 0.01, 2)
    assert other.reserved == 0.25 and dm.default_level == "debug"
    dm.log("a message", "info")
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = dm.nothing_such


@pytest.mark.usefixtures("settings")
def test_find_device_waits_by_the_comm_interface_and_gives_the_cpu() -> None:
    class Comm:
        slept: list[float] = []  # noqa: RUF012

        def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    manager = tensor_managed.DeviceManager(comm_interface=Comm(), retry_limit=3, wait_time=0.5)
    assert manager.find_device(1 << 40) == manager.cpu_device and Comm.slept == [0.5] * 3
    assert manager.find_device(400) == torch.device("managed:0")


def test_send_moves_in_place() -> None:
    tensors = [torch.randn(10, 10), torch.randn(3, requires_grad=True)]
    copies = [tensor.detach().clone() for tensor in tensors]
    sent = dm.send(tensors)
    assert all(a is b for a, b in zip(sent, tensors, strict=True))
    assert all(tensor.device in dm.cuda_devices for tensor in tensors) and tensors[1].requires_grad
    dm.send(tensors, "cuda:1")
    assert [innkeeper.where(tensor) for tensor in tensors] == [["sim:1"]] * 2
    dm.send(tensors, "cpu")
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))
    with pytest.raises(ValueError, match="none of the 2 nodes that compute"):
        dm.send(tensors, "cuda:9")
    assert dm.cuda(torch.ones(2)) in dm.cuda_devices and dm.cpu(torch.ones(2)) == dm.cpu_device


def test_the_heuristic_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(100)
    assert dm.size_estimate(x) == 400 + 30 and dm.size_estimate(x, nn.Parameter(x)) == 430 + 800 + 42
    monkeypatch.setattr(tensor_managed, "HEUSRISTIC_FUNCTION", lambda size: size * 3)
    assert dm.size_estimate(x) == 1200
    monkeypatch.setattr(tensor_managed, "HEURISTIC_FUNCTION", lambda size: size * 2)
    assert dm.size_estimate(x) == 800
    monkeypatch.setattr(tensor_managed, "USE_HEURISTIC", False)
    assert dm.size_estimate(x) == 400


def test_programs_of_the_package_run(scripts: Scripts) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
from managed import ManagedTensor as first  # before PyTorch
import torch
from managed import ManagedModule as mm, ManagedTensor as mt, device_manager
from managed.tensor import ManagedTensor
import managed.device_manager
import managed
assert ManagedTensor is mt and managed.device_manager is device_manager and managed.USE_HEURISTIC

x = torch.randn(2, 3).as_subclass(mt)
y = torch.randn(2, 3).cuda().as_subclass(mt)
z = x + y
print(z.device, x.device, type(z).__name__, device_manager.devices)

class Model(mm):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(10, 1)
    def forward(self, x):
        return self.linear(x).sum()

def run_experiment(loader):
    model = Model().cuda()
    model.pin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(30):
        net_loss = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y.sum()) ** 2
            net_loss += loss.item()
            loss.backward()
            optimizer.step()
    return model, net_loss

# Rows at right angles: wherever the threads' draws let a model start, it fits them.
data = torch.utils.data.TensorDataset(3 * torch.eye(8, 10), torch.randn(8, 1))
with ThreadPoolExecutor(max_workers=4) as executor:
    futures = [executor.submit(run_experiment, torch.utils.data.DataLoader(data)) for _ in range(8)]
    for future in futures:
        model, loss = future.result()
        assert loss < 1 and model(torch.randn(10)).is_cuda, loss

def solve(x):
    matrix = (torch.eye(4) * 2 + torch.ones(4, 4)).as_subclass(mt).cuda(disperse=True)
    x = x.as_subclass(mt).cuda(matrix.device)
    return torch.linalg.solve(matrix, x)
print(solve(torch.ones(4)).cpu().allclose(torch.full((4,), 1 / 6)))
x = torch.rand(3).as_subclass(mt).to("cuda")
print(x.device in device_manager.cuda_devices, x.to("cpu").device, x.cpu().numpy().shape)
"""
    done = scripts.run(scripts.write(code))
    assert done.returncode == 0, done.stderr
    devices = "(device(type='cpu'), device(type='cuda', index=0), device(type='cuda', index=1))"
    assert done.stdout.splitlines() == [f"cuda:0 cuda:0 ManagedTensor {devices}", "True", "True cpu (3,)"]


def test_tensors_and_modules_of_two_gpus_come_together(scripts: Scripts) -> None:
    code = """
import torch
from managed import ManagedModule as mm, ManagedTensor as mt
a, b = torch.ones(4, device="cuda:0").as_subclass(mt), torch.full((2, 4), 2.0, device="cuda:1").as_subclass(mt)
c = a + b
print(c.device, a.device, c.sum().item(), type(torch.cat([c, torch.ones(1, 4, device="cuda:0")])).__name__)
w = torch.ones(4, device="cuda:0", requires_grad=True)
((w * 2).as_subclass(mt) * b).sum().backward()
print(w.grad)
first, second = mm(torch.nn.Linear(4, 4)).cuda(0), mm(torch.nn.Linear(4, 1)).cuda(1)
y = second(first(torch.ones(2, 4)))
y.sum().backward()
print(y.device, first.weight.grad.device, second(torch.ones(1, 4).as_subclass(mt)).device)
"""
    assert scripts.ok(code).splitlines() == [
        "cuda:1 cuda:1 24.0 ManagedTensor",
        "tensor([8., 8., 8., 8.], device='cuda:0')",
        "cuda:1 cuda:0 cuda:1",
    ]


def test_spreading_and_packing_over_devices(scripts: Scripts) -> None:
    code = """
import torch
from managed import device_manager as dm, ManagedTensor as mt
held = torch.ones(1 << 20, device="cuda:0")
print([str(dm.find_device(400, disperse=disperse)) for disperse in (True, False)])
print(torch.randn(2).to(dm.find_device(400, disperse=True)).device)
print(torch.rand(3).as_subclass(mt).cuda(disperse=True).device, torch.rand(3).as_subclass(mt).cuda().device)
dm.cuda_devices = (torch.device("cuda:1"),)
print(dm.find_device(400), dm.devices)
"""
    assert scripts.ok(code).splitlines() == [
        "['cuda:1', 'cuda:0']",
        "cuda:1",
        "cuda:1 cuda:0",
        "cuda:1 (device(type='cpu'), device(type='cuda', index=1))",
    ]


def test_install_gives_the_name_where_no_such_package_is(scripts: Scripts) -> None:
    code = """
from innkeeper.compat import tensor_managed
try:
    import managed
except ImportError as error:
    print(error)
tensor_managed.install()
tensor_managed.install()
import managed, torch
print(managed is tensor_managed, managed.ManagedTensor([1.0]).cuda().device)
"""
    assert scripts.plain(code)[0].splitlines() == ["No module named 'managed'", "True managed:0"]
    (scripts.directory / "managed.py").write_text("mine = True\n")
    assert scripts.plain("import managed\nprint(managed.mine)")[0] == "True\n"
    assert scripts.ok("import managed\nprint(managed.mine)") == "True\n"


def test_the_package_is_not_loaded_without_a_request(scripts: Scripts, tmp_path: Path) -> None:
    """CUDA's rule holds for all other programs."""
    code = """
import torch
try:
    torch.ones(2) + torch.ones(2, device="cuda")
except RuntimeError as error:
    print(str(error)[:40])
import managed
print((torch.ones(2) + torch.ones(2, device="cuda")).device)
"""
    assert scripts.ok(code).splitlines() == ["Expected all tensors to be on the same d", "cuda:0"]
    refused = scripts.run(scripts.write(code), INNKEEPER_MIXED="refuse")
    assert refused.returncode == 1 and "Expected all tensors" in refused.stderr.splitlines()[-1]
