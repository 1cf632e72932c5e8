"""ManagedTensor: the predecessor's class, as maker and mark of plain tensors on the device."""

from __future__ import annotations

import innkeeper
import pytest
from innkeeper import ManagedTensor

import torch


def test_makes_plain_tensors():
    x = ManagedTensor([[1.0, 2.0]], requires_grad=True)
    assert type(x) is torch.Tensor and x.device.type == "managed" and x.requires_grad and x.is_leaf
    y = ManagedTensor.create(torch.arange(3), dtype=torch.float64)
    assert y.dtype == torch.float64 and y.tolist() == [0, 1, 2]
    source = torch.ones(2, device="managed")
    copy = ManagedTensor.create(source)
    copy += 1
    assert source.tolist() == [1, 1] and copy.tolist() == [2, 2]


def test_isinstance_is_about_the_device():
    x = torch.ones(2)
    assert not isinstance(x, ManagedTensor) and isinstance(x.to("managed"), ManagedTensor)
    assert isinstance(x.to("managed") * 2, ManagedTensor)
    assert isinstance(torch.nn.Linear(1, 1).to("managed").weight, ManagedTensor)
    assert not isinstance(None, ManagedTensor) and issubclass(ManagedTensor, torch.Tensor)


def test_wrap_keeps_gradients_and_identity():
    x = torch.ones(3, requires_grad=True)
    y = ManagedTensor.wrap(x)
    (y * y).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2] and x.grad.device.type == "cpu"
    assert ManagedTensor.wrap(y) is y
    assert innkeeper.where(ManagedTensor.wrap(torch.ones(3), disperse=True))[0].startswith("sim:")


def test_a_subclass_instance_moves_at_its_first_use():
    x = torch.arange(4.0).as_subclass(ManagedTensor)
    assert x.device.type == "cpu" and x.shape == (4,)
    y = torch.ones(4, device="managed")
    z = x + y
    assert x.device.type == "managed" and z.device.type == "managed" and z.tolist() == [1, 2, 3, 4]
    x.mul_(2)
    assert x.tolist() == [0, 2, 4, 6]


def test_a_subclass_instance_can_be_pinned():
    x = torch.arange(4.0).as_subclass(ManagedTensor).cuda(disperse=True)
    assert not x.pinned
    x.pin("sim:1")
    assert x.pinned and "sim:1" in innkeeper.where(x)
    x.unpin()
    assert not x.pinned
    z = x.cuda() + 1
    z.pin()
    z.unpin()
    assert z.cpu().tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"innkeeper\.on"):
        x.cuda("cuda:1")


def test_gradients_flow_through_subclass_instances():
    weights = torch.ones(3, requires_grad=True)
    x = (weights * 2).as_subclass(ManagedTensor)
    (x.cuda() * ManagedTensor([1.0, 2.0, 3.0])).sum().backward()
    assert weights.grad is not None and weights.grad.tolist() == [2, 4, 6]
