"""Operators of dense operands whose results are made of parts: sparse, nested, or quantized.

Their schemas do not say so, and some decide it by an argument. Each result's parts are managed, on
whichever node the operator ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import torch
from torch import Tensor, nn

COMPRESSED = ("csr", "csc", "bsr")
HOST = "host:256MiB"
NODES = ["sim:1x4MiB,host:256MiB", HOST]
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda x: x.to_sparse(),
    "coo, not coalesced": lambda x: torch.sparse_coo_tensor(
        torch.tensor([[1, 1, 0], [2, 2, 3]]), x.flatten()[:3].clone(), (4, 6)
    ),
    "coo of rows": lambda x: x.to_sparse(1),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "per tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
    "per channel": lambda x: torch.quantize_per_channel(
        x, torch.full((4,), 0.2), torch.zeros(4, dtype=torch.int64), 0, torch.qint8
    ),
    "nested": lambda x: torch._nested_tensor_from_mask(x[None], torch.ones(1, 4, dtype=torch.bool)),
    "none of them": lambda x: x * 2,
}


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library("innkeeper_composed", "DEF")
    made.define("one(Tensor x, str kind) -> Tensor")
    made.impl("one", lambda x, kind: OPERATORS[kind](x), "CPU")
    made.define("all(Tensor x, str[] kinds) -> Tensor[]")
    made.impl("all", lambda x, kinds: [OPERATORS[kind](x) for kind in kinds], "CPU")
    made.define("two(Tensor x) -> (Tensor, Tensor)")
    made.impl("two", lambda x: (x.to_sparse(), x + 1), "CPU")
    yield made
    made._destroy()


def operand() -> Tensor:
    x = torch.arange(24.0).view(4, 6) - 7
    return x.masked_fill_(x.long() % 3 == 0, 0)


def assert_same(actual: Tensor, expected: Tensor) -> None:
    assert actual.device.type == "managed" and actual.layout == expected.layout
    assert actual.is_quantized == expected.is_quantized and actual.is_nested == expected.is_nested
    if expected.layout == torch.sparse_coo:
        assert actual.is_coalesced() == expected.is_coalesced()
    back = actual.cpu()
    if expected.is_quantized:
        assert torch.equal(back.int_repr(), expected.int_repr())
        back, expected = back.dequantize(), expected.dequantize()
    elif expected.is_nested:
        back, expected = back.to_padded_tensor(0), expected.to_padded_tensor(0)
    elif expected.layout != torch.strided:
        back, expected = back.to_dense(), expected.to_dense()
    assert torch.equal(back, expected)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("kind", OPERATORS)
def test_of_a_library(configure: Callable[[str], None], nodes: str, kind: str):
    configure(nodes)
    x = operand()
    if kind in COMPRESSED and nodes != HOST:
        with pytest.raises(NotImplementedError, match=r"compressed sparse .*give torch.sparse_coo"):
            torch.ops.innkeeper_composed.one(x.to("managed"), kind)
    else:
        assert_same(torch.ops.innkeeper_composed.one(x.to("managed"), kind), OPERATORS[kind](x))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("nodes", NODES)
def test_in_a_list_and_beside_dense_ones(configure: Callable[[str], None], nodes: str):
    configure(nodes)
    x = operand()
    kinds = [kind for kind in OPERATORS if nodes == HOST or kind not in COMPRESSED]
    for kind, each in zip(kinds, torch.ops.innkeeper_composed.all(x.to("managed"), kinds), strict=True):
        assert_same(each, OPERATORS[kind](x))
    sparse, dense = torch.ops.innkeeper_composed.two(x.to("managed"))
    assert_same(sparse, x.to_sparse())
    assert_same(dense, x + 1)


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_of_embeddings_trains(configure: Callable[[str], None], nodes: str, mode: str):
    configure(nodes)

    def train(device: str) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(50, 8, mode=mode, sparse=True, padding_idx=3).to(device)
        optimizer = torch.optim.SparseAdam(bag.parameters(), lr=0.1)
        for step in range(3):
            torch.manual_seed(step)
            ids, offsets = torch.randint(0, 50, (20,)).to(device), torch.arange(0, 20, 4).to(device)
            optimizer.zero_grad()
            bag(ids, offsets).square().sum().backward()
            optimizer.step()
        assert bag.weight.grad is not None and bag.weight.grad.device == bag.weight.device
        return bag.weight.grad.cpu(), bag.weight.detach().cpu()

    gradient, weight = train("managed")
    plain_gradient, plain_weight = train("cpu")
    assert torch.equal(gradient.coalesce().to_dense(), plain_gradient.coalesce().to_dense())
    assert gradient.is_coalesced() == plain_gradient.is_coalesced()
    assert torch.equal(weight, plain_weight)


@pytest.mark.parametrize("nodes", NODES)
def test_a_layout_of_the_cpu_alone_is_refused(configure: Callable[[str], None], nodes: str):
    configure(nodes)
    with pytest.raises(NotImplementedError, match=r"layout .*[Mm]kldnn"):
        torch.ones(4, 4, device="managed").to_mkldnn()
