"""Copies and zeros: one operator where the host alone computes, and the CPU's results everywhere."""

from __future__ import annotations

from collections.abc import Callable

import innkeeper
import pytest

import torch
from torch import Tensor

HOST = "host:64MiB"
BOTH = pytest.mark.parametrize("nodes", [HOST, "sim:1x16MiB,host:64MiB"])

INPUTS: dict[str, Callable[[], Tensor]] = {
    "whole": lambda: torch.arange(24.0).view(2, 3, 4),
    "a part": lambda: torch.arange(24.0)[3:17:2],
    "transposed": lambda: torch.arange(12.0).view(3, 4).t(),
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 5),
    "a number": lambda: torch.tensor(7),
    "nothing": lambda: torch.empty(0, 3),
    "zeros without memory": lambda: torch._efficientzerotensor((2, 3)),
    "bits": lambda: torch.tensor([True, False]),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
    "images": lambda: torch.arange(48.0).view(1, 3, 4, 4).contiguous(memory_format=torch.channels_last),
}


def same(managed: Tensor, plain: Tensor) -> None:
    assert torch.equal(managed.cpu(), plain)
    assert (managed.dtype, managed.stride(), managed.storage_offset()) == (
        plain.dtype,
        plain.stride(),
        plain.storage_offset(),
    )
    assert (managed.is_conj(), managed.is_neg()) == (plain.is_conj(), plain.is_neg())


@BOTH
@pytest.mark.parametrize("name", INPUTS)
def test_a_copy_and_zeros_are_what_they_are_on_the_cpu(
    nodes: str, name: str, configure: Callable[[str], None]
):
    configure(nodes)
    plain, x = INPUTS[name](), INPUTS[name]().to("managed")
    if name in ("a part", "transposed", "expanded"):  # The copy by to() is whole.
        x = torch.as_strided(torch.arange(24.0).to("managed"), plain.size(), plain.stride(), 3)
        plain = torch.as_strided(torch.arange(24.0), plain.size(), plain.stride(), 3)
    if name in ("conjugate", "negative"):
        x = torch.tensor([1 + 2j, 3 - 1j]).to("managed").conj()
        x = x.imag if name == "negative" else x
    same(x.clone(), plain.clone())
    same(x.clone(memory_format=torch.contiguous_format), plain.clone(memory_format=torch.contiguous_format))
    same(torch.zeros_like(x), torch.zeros_like(plain))
    same(torch.zeros_like(x, dtype=torch.int16), torch.zeros_like(plain, dtype=torch.int16))
    same(torch.zeros_like(x, device="managed:0"), torch.zeros_like(plain))
    on_cpu = torch.zeros_like(x, device="cpu")
    assert on_cpu.device.type == "cpu"
    same(on_cpu, torch.zeros_like(plain))


@BOTH
def test_a_copy_is_another_tensor_with_a_gradient(nodes: str, configure: Callable[[str], None]):
    configure(nodes)
    x = torch.ones(5, device="managed", requires_grad=True)
    y = x.clone()
    y.detach().mul_(3)
    assert x.sum().item() == 5
    assert y.sum().item() == 15
    (y * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.sum().item() == 10
    innkeeper.evict(y)
    assert y.clone().sum().item() == 15
    with pytest.raises(RuntimeError, match="managed"):
        torch.zeros_like(x, device="managed:1")
    assert torch.zeros_like(x, layout=torch.sparse_coo).is_sparse


def test_on_the_host_each_is_one_operator(configure: Callable[[str], None]):
    configure(HOST)
    x = torch.ones(5, device="managed")
    makers: list[Callable[[Tensor], Tensor]] = [torch.clone, torch.zeros_like]
    for make in makers:
        before = innkeeper.stats()["ops"]
        made = make(x)
        assert innkeeper.stats()["ops"] == before + 1
        assert made.device == x.device
