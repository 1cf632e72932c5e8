"""ManagedTensor: the predecessor's class, as vendor and mark of plain tensors on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import innkeeper
import numpy
import pytest
from innkeeper import ManagedTensor

import torch
from torch import nn


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


def test_gradients_flow_through_subclass_instances():
    weights = torch.ones(3, requires_grad=True)
    x = (weights * 2).as_subclass(ManagedTensor)
    (x.cuda() * ManagedTensor([1.0, 2.0, 3.0])).sum().backward()
    assert weights.grad is not None and weights.grad.tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    "data", [(), (5,), (2, 3), (torch.Size((4, 1)),), ([1, 2],), ([[1.5], [2.0]],), ((1, 2),), ([],)], ids=str
)
def test_is_built_as_torch_tensor_is(data: tuple[Any, ...]) -> None:
    made, plain = ManagedTensor(*data), torch.Tensor(*data)
    assert type(made) is torch.Tensor and made.device.type == "managed"
    assert (made.shape, made.dtype) == (plain.shape, plain.dtype)
    if data and not isinstance(data[0], (int, torch.Size)):
        assert torch.equal(made.cpu(), plain)


def test_options_and_arrays() -> None:
    x = ManagedTensor([1, 2], requires_grad=True)
    assert x.dtype == torch.float32 and x.requires_grad and x.is_leaf
    assert ManagedTensor([1, 2], dtype=torch.int16).dtype == torch.int16
    assert ManagedTensor(numpy.array([1.5, 2.5])).tolist() == [1.5, 2.5]
    assert ManagedTensor(torch.tensor([1, 2])).dtype == torch.int64
    with pytest.raises(TypeError, match="not colour"):
        ManagedTensor([1], colour="red")
    with pytest.raises(TypeError):
        ManagedTensor({1: 2})


class Own(ManagedTensor):
    """A user's class."""


class Named(ManagedTensor):
    """A user's class with a constructor."""

    label: str

    @staticmethod
    def __new__(cls, data: Any, name: str) -> Named:
        x = torch.tensor(data).as_subclass(cls)
        x.label = name
        return x


def test_classes_derived_from_it_move_and_keep_their_class() -> None:
    x = torch.arange(3.0).as_subclass(Own)
    assert isinstance(x, ManagedTensor) and isinstance(x, Own) and x.device.type == "cpu"
    y = x + 1
    assert type(y) is Own and y.device.type == x.device.type == "managed" and y.tolist() == [1, 2, 3]
    assert not isinstance(torch.ones(2, device="managed"), Own)
    assert type(Own([1, 2])) is Own and Own(2, 3).shape == (2, 3) and type(x.cuda()) is Own
    named = Named([1.0], "weight")
    assert named.label == "weight" and (named * 2).device.type == "managed"


def test_what_reads_the_memory_of_the_cpu_moves_nothing() -> None:
    x = torch.arange(3.0).as_subclass(ManagedTensor)
    assert x.numpy().tolist() == numpy.asarray(x).tolist() == x.tolist() == [0, 1, 2]
    assert x[1].item() == 1 and torch.ones(1).as_subclass(ManagedTensor).item() == 1
    assert torch.ones(1).as_subclass(ManagedTensor).device.type == "cpu"


def test_cuda_of_a_managed_tensor_stays_managed() -> None:
    x = ManagedTensor([1.0, 2.0])
    assert x.cuda() is x and x.cuda(non_blocking=True) is x
    assert innkeeper.where(x.cuda(1)) == ["sim:1"] and innkeeper.where(x + 1) == ["sim:1"]
    y = ManagedTensor(torch.zeros(2, 3, 4, 5))
    assert y.cuda(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    marked = torch.ones(2).as_subclass(ManagedTensor)
    assert innkeeper.where(marked.cuda("cuda:1")) == ["sim:1"]
    for z in (x, marked):
        with pytest.raises(ValueError, match="none of the 2 nodes that compute: sim:0, sim:1"):
            z.cuda(7)
        with pytest.raises(ValueError, match="none of the 2"):
            z.cuda("cpu:1")


def test_cuda_of_others_is_pytorch_s() -> None:
    """It acts as PyTorch does: checks the arguments, reports that CUDA is absent, and copies with a GPU."""
    parameter = nn.Parameter(torch.ones(1))
    calls: list[Callable[[], object]] = [
        torch.ones(1).cuda,
        lambda: torch.ones(1).cuda(0, non_blocking=True),
        lambda: torch.ones(1, 1, 1, 1).cuda(memory_format=torch.channels_last),
        parameter.cuda,
        nn.Linear(1, 1).cuda,
    ]
    for call in calls:
        with pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA driver"):
            call()


def test_a_change_of_the_type_keeps_the_class() -> None:
    x = torch.ones(2).as_subclass(Own)
    for y in (x.to(torch.float64), x.to(dtype=torch.float64), x.double()):
        assert type(y) is Own and y.dtype == torch.float64
    assert f"{x.sum():.2f}" == "2.00"


def test_writing_in_place_is_not_lost() -> None:
    w = torch.ones(2, requires_grad=True)
    x = (w * 2).as_subclass(ManagedTensor)
    x.add_(1)
    x[0] = 7
    assert x.tolist() == [7, 3]
    x.sum().backward()
    assert w.grad is not None and w.grad.tolist() == [0, 2]
    with pytest.raises(ValueError, match="on cpu"):
        (w * 2).as_subclass(ManagedTensor).pin()


def test_questions_and_views_move_nothing() -> None:
    x = torch.ones(2, 3).as_subclass(Own)
    asked = (len(x), x.dim(), x.numel(), x.stride(), x.is_contiguous(), x.type(), x.get_device())
    assert asked[:3] == (2, 2, 6) and x.device.type == "cpu"
    assert type(x.T) is type(x.data) is type(x.detach()) is Own and x.device.type == "cpu"
    assert (x.T * 2).device.type == "managed"


def test_every_tensor_has_the_verbs() -> None:
    x = nn.Parameter(torch.ones(2, device="managed"))
    x.pin("sim:1")
    assert x.pinned and "sim:1" in innkeeper.where(x)
    x.unpin()
    assert not x.pinned and not torch.ones(1).pinned
    with pytest.raises(ValueError, match="on cpu, not managed"):
        torch.ones(1).pin()
