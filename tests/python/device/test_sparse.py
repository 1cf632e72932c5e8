"""Sparse tensors on managed: COO and compressed ones, their parts in managed memory, with the CPU's bits."""

from __future__ import annotations

import copy
import gc
import io

import innkeeper
import pytest

import torch
from torch import Tensor, nn

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
COMPRESSED = LAYOUTS[1:]


def matrix(seed: int = 0, rows: int = 6, columns: int = 8, dtype: torch.dtype = torch.float32) -> Tensor:
    """A dense CPU matrix of which about two thirds are zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator, dtype=dtype)
    return x.masked_fill_(torch.rand(rows, columns, generator=generator) < 0.67, 0)


def to_layout(x: Tensor, layout: torch.layout) -> Tensor:
    """The dense matrix in a layout; the blocked ones in blocks of 2 by 2."""
    return x.to_sparse(
        layout=layout, blocksize=(2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    )


def parts(x: Tensor) -> list[Tensor]:
    """Indices and values of a sparse tensor of any layout."""
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    return [x.ccol_indices(), x.row_indices(), x.values()]


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """A managed sparse tensor with the bits of one on the CPU, part by part."""
    assert actual.device.type == "managed"
    assert actual.layout == expected.layout
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    if actual.layout == torch.sparse_coo:
        assert actual.is_coalesced() == expected.is_coalesced()
    for a, e in zip(parts(actual), parts(expected), strict=True):
        assert a.device.type == "managed"
        assert torch.equal(a.cpu(), e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64, torch.bool])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_made_of_dense_moved_and_made_dense(layout: torch.layout, dtype: torch.dtype):
    x = matrix().to(dtype)
    expected = to_layout(x, layout)
    sparse = to_layout(x.to("managed"), layout)
    assert_same(sparse, expected)
    assert_same(expected.to("managed"), expected)
    assert_same(sparse.clone(), expected)
    back = sparse.cpu()
    assert back.device.type == "cpu"
    assert torch.equal(back.to_dense(), x)
    dense = sparse.to_dense()
    assert dense.device.type == "managed"
    assert torch.equal(dense.cpu(), x)


def replicas() -> int:
    """Bytes of all replicas on all nodes."""
    gc.collect()
    return sum(node["replicas"] for node in innkeeper.stats()["nodes"].values())


def test_parts_are_blocks_that_move_and_are_counted():
    x = matrix().to("managed")
    innkeeper.prefetch(x, "host")
    torch.accelerator.synchronize()
    before = replicas()
    sparse = x.to_sparse()
    values = sparse.values()
    assert replicas() == before + sparse.indices().nbytes + values.nbytes
    innkeeper.pin(values, "sim:1")
    assert "sim:1" in innkeeper.where(values)
    assert torch.equal(sparse.cpu().to_dense(), matrix())
    innkeeper.unpin(values)
    innkeeper.evict(values)
    assert innkeeper.where(values) == ["host"]
    assert torch.equal((sparse * 2).to_dense().cpu(), matrix() * 2)


def test_built_of_managed_parts():
    indices = torch.tensor([[0, 1, 1], [2, 0, 0]])
    values = torch.tensor([3.0, 4.0, 5.0])
    expected = torch.sparse_coo_tensor(indices, values, (2, 3))
    built = torch.sparse_coo_tensor(indices.to("managed"), values.to("managed"), (2, 3))
    assert_same(built, expected)
    assert not built.is_coalesced()
    assert (built.sparse_dim(), built.dense_dim(), built._nnz()) == (2, 0, 3)
    assert_same(built.coalesce(), expected.coalesce())
    assert "nnz=3" in repr(built)
    hybrid = torch.sparse_coo_tensor(indices.to("managed"), torch.ones(3, 4).to("managed"))
    assert (hybrid.sparse_dim(), hybrid.dense_dim(), tuple(hybrid.shape)) == (2, 1, (2, 3, 4))
    with pytest.raises(RuntimeError, match="negative index"):
        torch.sparse_coo_tensor(
            -indices.to("managed") - 1, values.to("managed"), (2, 3), check_invariants=True
        )


def test_under_checked_invariants():
    with torch.sparse.check_sparse_tensor_invariants():
        sparse = matrix().to("managed").to_sparse() * 2
        assert torch.equal(sparse.to_sparse_csr().to_dense().cpu(), matrix() * 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copied_saved_and_loaded(layout: torch.layout):
    sparse = to_layout(matrix().to("managed"), layout)
    assert_same(copy.deepcopy(sparse), sparse.cpu())
    file = io.BytesIO()
    torch.save(sparse, file)
    for target in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=target)
        assert loaded.device.type == (target or "managed")
        assert torch.equal(loaded.to_dense().cpu(), matrix())


def test_empty_ones():
    for layout in (torch.sparse_coo, torch.sparse_csr):
        made = torch.zeros(3, 4, layout=layout, device="managed")
        assert_same(made, torch.zeros(3, 4, layout=layout))
        assert made._nnz() == 0
        assert torch.equal(made.to_dense().cpu(), torch.zeros(3, 4))
        assert_same(
            torch.zeros(3, 4).to("managed").to_sparse(layout=layout),
            torch.zeros(3, 4).to_sparse(layout=layout),
        )


OPERATORS = {
    "add": lambda a, b, d: a + b,
    "sub": lambda a, b, d: a - 2 * b,
    "mul": lambda a, b, d: a * b,
    "div": lambda a, b, d: a / 3,
    "neg": lambda a, b, d: -a,
    "sin": lambda a, b, d: a.sin(),
    "sum": lambda a, b, d: a.sum(),
    "mm": lambda a, b, d: a @ d,
    "mv": lambda a, b, d: a @ d[:, 0],
    "addmm": lambda a, b, d: torch.sparse.addmm(d.new_ones(6, 5), a, d),
    "transpose": lambda a, b, d: a.t(),
    "sparse_mm": lambda a, b, d: torch.sparse.mm(a, b.t()),
    "dense_add": lambda a, b, d: a.to_dense() + b,
    "mask": lambda a, b, d: b.to_dense().sparse_mask(a.coalesce()),
    "softmax": lambda a, b, d: torch.sparse.softmax(a, 1),
    "sparse_sum": lambda a, b, d: torch.sparse.sum(a, 0),
    "index_select": lambda a, b, d: a.index_select(0, torch.tensor([3, 1], device=a.device)),
    "cat": lambda a, b, d: torch.cat([a, b]),
    "unsqueeze": lambda a, b, d: a.unsqueeze(0),
    "norm": lambda a, b, d: a.norm(),
    "to": lambda a, b, d: a.to(torch.float64),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_coo_operators_have_the_cpus_bits(name: str):
    run = OPERATORS[name]
    cpu = (matrix(1).to_sparse(), matrix(2).to_sparse(), torch.randn(8, 5))
    expected = run(*cpu)
    actual = run(*(x.to("managed") for x in cpu))
    if expected.is_sparse:
        assert_same(actual, expected)
    else:
        assert actual.device.type == "managed"
        assert torch.equal(actual.cpu(), expected)


def test_csr_operators_have_the_cpus_bits():
    a = matrix(1).to_sparse_csr()
    d = torch.randn(8, 5)
    managed = a.to("managed")
    assert_same(managed * 3, a * 3)
    assert_same(managed.sin(), a.sin())
    assert_same(managed.to_sparse_coo(), a.to_sparse_coo())
    assert torch.equal((managed @ d.to("managed")).cpu(), a @ d)
    reduced = torch.sparse.mm(managed, d.to("managed"), "mean")
    assert torch.equal(reduced.cpu(), torch.sparse.mm(a, d, "mean"))
    left, right = torch.randn(6, 4), torch.randn(4, 8)
    sampled = torch.sparse.sampled_addmm(managed, left.to("managed"), right.to("managed"))
    assert_same(sampled, torch.sparse.sampled_addmm(a, left, right))


@pytest.mark.parametrize("needs_grad", ["sparse", "dense"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "amax", "amin"])
def test_reducing_product_has_the_cpus_gradients(reduction: str, needs_grad: str):
    results = []
    for device in ("cpu", "managed"):
        a = matrix(1).to_sparse_csr().to(device)
        d = matrix(3, 8, 5).to(device)
        wanted = (a if needs_grad == "sparse" else d).requires_grad_()
        torch.sparse.mm(a, d, reduction).pow(2).sum().backward()
        assert wanted.grad is not None
        results.append(wanted.grad.cpu().to_dense())
    assert torch.equal(*results)


def in_place(x: Tensor, other: Tensor) -> list[Tensor]:
    """Writes a sparse tensor in all the ways that keep or change its parts; clones it after each."""
    seen = []
    for write in (
        lambda: x.mul_(2),
        lambda: x.add_(other),
        lambda: x.neg_(),
        lambda: x.copy_(other),
        lambda: x.zero_(),
        lambda: x.sparse_resize_((7, 9), 2, 0),
    ):
        assert write() is x
        seen.append(x.clone())
    return seen


def test_written_sparse_operands():
    a, b = matrix(1).to_sparse(), matrix(2).to_sparse()
    actual = in_place(a.to("managed"), b.to("managed"))
    for one, other in zip(actual, in_place(a.clone(), b), strict=True):
        assert_same(one, other)
    dense = torch.ones(6, 8).to("managed")
    dense.add_(b.to("managed"), alpha=3)
    assert torch.equal(dense.cpu(), torch.ones(6, 8).add_(b, alpha=3))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(layout: torch.layout):
    results = []
    for device in ("cpu", "managed"):
        x = matrix().to(device).requires_grad_()
        torch.manual_seed(5)
        weight = torch.randn(8, 3).to(device)
        dense = to_layout(x, layout).to_dense() @ weight
        dense.pow(2).sum().backward()
        results.append(x.grad.to_dense().cpu())
    assert torch.equal(*results)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_sparse_embedding_trains_to_the_cpus_bits(kind: str):
    weights = []
    for device in ("cpu", "managed"):
        torch.manual_seed(2)
        table = nn.Embedding(40, 16, sparse=True).to(device)
        optimizer: torch.optim.Optimizer
        if kind == "sgd":
            optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        else:
            optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        words = torch.randint(0, 40, (5, 30), generator=torch.Generator().manual_seed(1))
        for row in words.to(device):
            optimizer.zero_grad()
            for half in row.view(2, -1):  # The second gradient is added to the first.
                table(half).pow(2).sum().backward()
            assert table.weight.grad is not None
            assert table.weight.grad.is_sparse
            optimizer.step()
        weights.append(table.weight.detach().cpu())
    assert torch.equal(*weights)


@pytest.mark.usefixtures("refuse_mixed")
def test_what_is_refused():
    sparse = matrix().to("managed").to_sparse()
    with pytest.raises(RuntimeError, match="same device"):
        sparse + matrix().to_sparse()
    with pytest.raises(RuntimeError, match="copy_"):
        torch.zeros(6, 8, device="managed").copy_(sparse)
    with pytest.raises((RuntimeError, NotImplementedError), match="SparseCPU"):
        torch.cumsum(sparse, 0)
    with pytest.raises(TypeError, match="indices and values"):
        innkeeper.where(sparse)
    assert torch.equal(sparse.to_dense().cpu(), matrix())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_left_behind(layout: torch.layout):
    x = matrix().to("managed")
    assert torch.equal(to_layout(x, layout).to_dense().cpu(), matrix())
    before, escaped = replicas(), innkeeper.stats()["escaped"]
    for _ in range(3):
        sparse = to_layout(x, layout)
        assert torch.equal(sparse.clone().mul_(2).to_dense().cpu(), matrix() * 2)
        del sparse
    assert replicas() == before
    assert innkeeper.stats()["escaped"] == escaped


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "add_", "mul_", "add out"])
def test_one_tensor_as_both_operands(layout: torch.layout, name: str):
    """Kernels test whether their operands are one tensor, and take other paths then."""

    def run(device: str) -> Tensor | None:
        x = to_layout(matrix().to(device), layout)
        try:
            made = torch.add(x, x, out=x) if name == "add out" else getattr(x, name)(x)
        except (RuntimeError, NotImplementedError):
            return None
        assert (made is x) == (name.endswith("_") or name == "add out")
        return made.to_dense().cpu()

    expected, got = run("cpu"), run("managed")
    assert (expected is None) == (got is None)
    assert expected is None or torch.equal(got, expected)
