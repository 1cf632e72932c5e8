"""A chapter on device management, block by block: "cuda" is "managed", and the text's claims are asserted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import innkeeper
import pytest
from processes import RunProgram
from torch.utils.data import DataLoader, TensorDataset

import torch
from torch import nn


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def test_the_device_object():
    assert torch.device("cpu").type == "cpu"
    assert torch.device("managed").type == "managed" and torch.device("managed").index is None
    assert torch.device("managed:0").index == 0
    x = torch.randn(3, 3)
    assert str(x.device) == "cpu"
    # Without an index the tensor is on the current device, which is 0.
    y = torch.randn(3, 3, device="managed")
    assert str(y.device) == "managed:0" and torch.managed.current_device() == 0


def test_creating_tensors_on_a_device():
    x = torch.randn(1000, 1000, device="managed")
    w = torch.zeros(256, 128, device="managed")
    indices = torch.arange(100, device="managed")
    assert {t.device.type for t in (x, w, indices)} == {"managed"}
    assert w.sum().item() == 0 and indices.sum().item() == 4950 and 0.99 < x.std().item() < 1.01


def test_creation_on_the_device_saves_the_copy_from_the_cpu():
    before = innkeeper.stats()["bytes_fetched"]
    torch.zeros(1000, 1000, device="managed")
    assert innkeeper.stats()["bytes_fetched"] == before
    x = torch.ones(1000, 1000)
    assert torch.equal(x.to("managed").cpu(), x)


def test_results_stay_on_the_sources_device():
    x = torch.randn(3, 3, device="managed")
    y = torch.zeros_like(x)
    z = x + 1
    assert y.device == x.device and z.device == x.device and y.tolist() == [[0.0] * 3] * 3


def test_moving_between_devices():
    x_cpu = torch.randn(3, 3)
    x_gpu = x_cpu.to("managed")
    x_back = x_gpu.to("cpu")
    assert x_gpu.device.type == "managed" and x_cpu.device.type == "cpu" and torch.equal(x_back, x_cpu)
    assert torch.equal(x_cpu.managed().cpu(), x_cpu)
    with innkeeper.on("sim:1"):  # The second GPU.
        assert innkeeper.where(x_cpu.managed()) == ["sim:1"]
    with pytest.raises((RuntimeError, ValueError)):
        x_cpu.managed(1)  # There is one managed device.


def test_to_is_a_no_op_on_the_target_device():
    x = torch.randn(3, 3, device="managed")
    y = x.to("managed")
    assert y is x and x.data_ptr() == y.data_ptr()
    assert x.to("managed", copy=True).data_ptr() != x.data_ptr()


def test_transfers_take_the_time_that_the_text_says(configure: Callable[[str], None]):
    configure("sim:1x64MiB,host:1GiB")  # The default link is PCIe 4 x16.

    def simulated_seconds(*shape: int) -> float:
        # The link's rate; pageable memory has the CPU's.
        x = torch.ones(shape).pin_memory()
        torch.managed.synchronize()
        start = innkeeper.stats()["simulated_seconds"]
        y = x.to("managed")
        torch.managed.synchronize()
        assert y.device.type == "managed"
        return innkeeper.stats()["simulated_seconds"] - start

    assert simulated_seconds(1000, 1000) == pytest.approx(0.16e-3, rel=0.1)
    assert simulated_seconds(64, 3, 224, 224) == pytest.approx(1.5e-3, rel=0.1)


def test_frequent_small_transfers_cost_more_than_one_large_one():
    large = torch.ones(1 << 20, device="managed")
    small = [torch.ones(1 << 10, device="managed") for _ in range(1 << 10)]

    def simulated_seconds(tensors: list[torch.Tensor]) -> float:
        for tensor in tensors:
            innkeeper.evict(tensor)
        torch.managed.synchronize()
        start = innkeeper.stats()["simulated_seconds"]
        for tensor in tensors:
            tensor.add_(1)  # Waits for its operand.
        torch.managed.synchronize()
        return innkeeper.stats()["simulated_seconds"] - start

    once = simulated_seconds([large])
    assert 4 * (1 << 20) / 70e9 < once < 4 * (1 << 20) / 10e9  # PCIe 4 or 5
    assert simulated_seconds(small) > 2 * once


SAME_DEVICE = "Expected all tensors to be on the same device"


@pytest.mark.usefixtures("refuse_mixed")
def test_operands_must_be_on_one_device():
    x = torch.randn(3, 3, device="managed")
    y = torch.randn(3, 3, device="cpu")
    with pytest.raises(
        RuntimeError, match=f"{SAME_DEVICE}, but found at least two devices, managed:0 and cpu!"
    ):
        x + y
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        y + x
    for operator in (torch.mm, torch.maximum, lambda a, b: torch.cat([a, b]), lambda a, b: a.add_(b)):
        for operands in ((x, y), (y, x)):
            with pytest.raises(RuntimeError, match=SAME_DEVICE):
                operator(*operands)
    assert (x + torch.tensor(1.0)).device.type == "managed"  # A number may be on the CPU, as for CUDA.


@pytest.mark.usefixtures("refuse_mixed")
def test_a_model_and_its_input_must_be_on_one_device():
    linear = nn.Linear(128, 64).to("managed")
    x = torch.randn(32, 128)
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        linear(x)
    x = x.to("managed")
    assert linear(x).shape == (32, 64)


def test_device_agnostic_code():
    device = torch.device("managed" if torch.managed.is_available() else "cpu")
    net = model().to(device)
    x = torch.randn(4, 784, device=device)
    assert net(x).device.type == "managed"
    device = innkeeper.get_device()
    assert device.type == "managed" and torch.ones(1, device=device).item() == 1


def test_module_to_is_in_place_and_tensor_to_is_not():
    net = model()
    weight = net[0].weight
    assert net.to("managed") is net and net[0].weight is weight and weight.device.type == "managed"
    assert all(p.device.type == "managed" for p in net.parameters())
    outer = nn.Sequential(nn.Sequential(nn.BatchNorm1d(3)))
    outer.to("managed")
    buffers = dict(outer.named_buffers())
    assert "0.0.running_mean" in buffers and all(b.device.type == "managed" for b in buffers.values())
    x = torch.randn(2)
    assert x.to("managed") is not x and x.device.type == "cpu"


def test_manual_placement():
    with innkeeper.on("sim:0"):
        encoder = nn.Linear(16, 8).to("managed")
        x = torch.randn(4, 16).to("managed")
    with innkeeper.on("sim:1"):
        decoder = nn.Linear(8, 1600).to("managed")
    innkeeper.pin(decoder, "sim:1")
    hidden = encoder(x)
    output = decoder(hidden)
    assert innkeeper.where(output) == ["sim:1"]
    assert innkeeper.where(hidden) == ["sim:0", "sim:1"]  # It was transferred for the decoder.
    output.sum().backward()
    assert encoder.weight.grad is not None and encoder.weight.grad.abs().sum().item() > 0
    innkeeper.unpin(decoder)


def test_training_loop_pattern():
    device = torch.device("managed" if torch.managed.is_available() else "cpu")
    data = TensorDataset(torch.randn(64, 784), torch.randint(10, (64,)))
    weights, losses = [], []
    for where in (torch.device("cpu"), device):
        torch.manual_seed(0)
        net = model().to(where)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, foreach=False)
        criterion = nn.CrossEntropyLoss()
        for _ in range(3):
            for batch_x, batch_y in DataLoader(data, batch_size=16):
                batch_x, batch_y = batch_x.to(where), batch_y.to(where)
                output = net(batch_x)
                loss = criterion(output, batch_y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        weights.append([p.detach().cpu() for p in net.parameters()])
    half = len(losses) // 2
    assert losses[:half] == losses[half:] and losses[-1] < losses[half]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_saving_and_loading_across_devices(tmp_path: Path):
    path = tmp_path / "model.pt"
    trained = model().to("managed")
    torch.save(trained.state_dict(), path)
    state = torch.load(path, map_location="cpu")
    assert all(t.device.type == "cpu" for t in state.values())
    other = model()
    other.load_state_dict(state)
    other.to("managed")
    assert all(
        torch.equal(a.cpu(), b.cpu()) for a, b in zip(trained.parameters(), other.parameters(), strict=True)
    )
    assert all(t.device.type == "managed" for t in torch.load(path).values())

    torch.save(model().state_dict(), path)  # The other direction.
    assert all(t.device.type == "managed" for t in torch.load(path, map_location="managed").values())
    assert all(
        t.device.type == "managed" for t in torch.load(path, map_location=torch.device("managed:0")).values()
    )


def test_loading_without_map_location_fails_where_the_device_is_not(run_python: RunProgram, tmp_path: Path):
    path = tmp_path / "model.pt"
    torch.save(torch.ones(2, device="managed"), path)
    done = run_python("-c", f"import torch; torch.load({str(path)!r})")
    assert done.returncode != 0 and "Error" in done.stderr.splitlines()[-1]
    done = run_python(
        "-c", f"import torch; assert torch.load({str(path)!r}, map_location='cpu').tolist() == [1, 1]"
    )
    assert done.returncode == 0, done.stderr


def test_checking_availability():
    assert torch.managed.is_available() is True
    assert torch.managed.device_count() == 1
    assert "sim:0" in torch.managed.get_device_name(0)
    x = torch.ones(1 << 18, device="managed")
    assert torch.managed.memory_allocated() >= x.nbytes
    assert torch.managed.memory_reserved() >= torch.managed.memory_allocated()
