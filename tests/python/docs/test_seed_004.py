"""PyTorch's own text on CUDA semantics: its additions to the notes (the code of both is in test_seed_003)."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import innkeeper
import pytest
from torch.utils.data import DataLoader, Dataset

import torch
from torch import nn

managed = torch.managed  # type: ignore[attr-defined]


def test_operations_do_not_depend_on_the_selected_device():
    with innkeeper.on("sim:1"):
        x = torch.ones(100, device="managed")
    for node in ("sim:0", "sim:1"):
        with innkeeper.on(node):
            assert innkeeper.where(x * 2) == ["sim:1"]
            assert innkeeper.where((x + 1) * x) == ["sim:1"]


@pytest.mark.usefixtures("refuse_mixed")
def test_tensors_on_different_nodes_work_together_without_peer_access():
    with innkeeper.on("sim:0"):
        x = torch.ones(100, device="managed")
    with innkeeper.on("sim:1"):
        y = torch.ones(100, device="managed")
    before = innkeeper.stats()
    assert (x + y).sum().item() == 200
    after = innkeeper.stats()
    moved = (
        after["bytes_between"] + after["bytes_fetched"] - before["bytes_between"] - before["bytes_fetched"]
    )
    assert moved == 400
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(100)


def test_memory_is_deallocated_without_waiting_and_can_be_released():
    managed.synchronize()
    before = managed.memory_allocated()
    for _ in range(100):
        torch.ones(1 << 20, device="managed")  # 400 MiB in all, through 16 MiB.
    assert managed.memory_allocated() == before
    managed.empty_cache()
    assert managed.memory_allocated() == before


def resident_bytes_of_this_process() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_freed_memory_is_kept_until_the_cache_is_emptied(configure: Callable[[str], None]):
    configure("sim:1x64MiB,host:1GiB")
    torch.ones(1, device="managed")
    before = resident_bytes_of_this_process()
    x = torch.ones(12 << 20, device="managed")  # 48 MiB
    del x
    managed.synchronize()
    assert managed.memory_allocated() == 0
    assert resident_bytes_of_this_process() - before > 40 << 20, "as nvidia-smi would show it"
    managed.empty_cache()
    assert resident_bytes_of_this_process() - before < 8 << 20


class Recurrent(nn.Module):
    """Makes its initial hidden state in forward, as the text does, and keeps to the input's device."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.RNNCell(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x.new(x.size(1), 8).fill_(0)
        for row in x:
            hidden = self.cell(row, hidden)
        return hidden


def test_new_tensors_inside_forward():
    net = Recurrent()
    x = torch.randn(5, 3, 4)
    expected = net(x)
    with innkeeper.on("sim:1"):
        moved = net.managed()
        y = moved(x.managed())
    assert y.device.type == "managed" and innkeeper.where(y) == ["sim:1"]
    assert torch.equal(y.cpu(), expected)


def test_pinning_storages():
    storage = torch.arange(10.0).untyped_storage()
    pinned = storage.pin_memory()
    assert pinned.is_pinned() and not storage.is_pinned() and list(pinned) == list(storage)


class Text(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((3,), index), "y": torch.tensor(index)}


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("count", [0, 2])
def test_a_data_loader_returns_pinned_batches_of_any_structure(count: int):
    loader = DataLoader(Text(), batch_size=4, pin_memory=True, num_workers=count)
    for number, batch in enumerate(loader):
        assert batch["x"].is_pinned() and batch["y"].is_pinned()
        y = batch["y"].managed(non_blocking=True)
        assert y.tolist() == list(range(4 * number, 4 * number + 4))
        assert batch["x"].to("managed").sum(1).tolist() == [3 * n for n in y.tolist()]
