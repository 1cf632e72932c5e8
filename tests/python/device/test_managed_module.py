"""ManagedModule: a base class, a wrapper, from_module."""

from __future__ import annotations

import copy
import io
import pickle

import innkeeper
import pytest
from innkeeper import ManagedModule, ManagedTensor

import torch
from torch import Tensor, nn


class Net(ManagedModule):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.inner(x) * self.scale


def all_managed(module: nn.Module) -> bool:
    return all(t.device.type == "managed" for t in (*module.parameters(), *module.buffers()))


def test_a_base_class_needs_no_move():
    net = Net(width=5)
    assert all_managed(net) and isinstance(net, nn.Module)
    assert isinstance(net.scale, nn.Parameter) and isinstance(net.scale, ManagedTensor)
    y = net(torch.ones(2, 4))
    assert y.device.type == "managed" and y.shape == (2, 5) and net.count.item() == 1


def test_trains_as_plain_pytorch_does():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    managed = ManagedModule(copy.deepcopy(plain))
    assert type(plain) is nn.Sequential
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    losses = []
    for module, target in ((plain, y), (managed, y.to("managed"))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for _ in range(5):
            loss = nn.functional.mse_loss(module(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == losses[5:] and losses[4] < losses[0]
    for a, b in zip(plain.parameters(), managed.parameters(), strict=True):
        assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("wrap", [ManagedModule, ManagedModule.from_module])
def test_wraps_an_initialised_module_in_place(wrap):
    linear = nn.Linear(3, 2)
    weight = linear.weight
    optimizer = torch.optim.SGD(linear.parameters(), lr=1.0)
    module = wrap(linear)
    assert module is linear and module.weight is weight and all_managed(module)
    assert isinstance(module, ManagedModule) and isinstance(module, nn.Linear)
    assert list(module.state_dict()) == ["weight", "bias"] and wrap(module) is module
    module(torch.ones(1, 3)).sum().backward()
    before = weight.detach().cpu()
    optimizer.step()
    assert torch.equal(weight.detach().cpu(), before - 1)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got int"):
        wrap(3)


def test_weights_stay_tied():
    class Tied(ManagedModule):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

    tied = Tied()
    assert tied.head.weight is tied.embedding.weight and len(list(tied.parameters())) == 1


def test_pin_and_unpin():
    net = Net()
    net.pin("sim:1")
    assert all("sim:1" in places for places in innkeeper.where(net).values())
    with pytest.raises(ValueError, match="pinned at sim:1"):
        innkeeper.evict(net)
    net.unpin()
    innkeeper.evict(net)


def test_copies_and_pickles():
    for net in (Net(), ManagedModule(nn.Linear(4, 8))):
        x = torch.ones(1, 4)
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        pickled = pickle.loads(pickle.dumps(net))
        for other in (copy.deepcopy(net), torch.load(buffer, weights_only=False), pickled):
            assert (
                type(other) is type(net) and all_managed(other) and torch.equal(other(x).cpu(), net(x).cpu())
            )
