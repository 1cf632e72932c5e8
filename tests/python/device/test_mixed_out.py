"""``out=`` on another device than the operands, for operators that compare both before they are composed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import torch
from torch import Tensor

M = "managed"
Call = Callable[..., Tensor]
LINALG = torch.linalg
ONES = torch.ones(3, dtype=torch.long)

# Called function, and the shape and type of its result.
CALLS: dict[str, tuple[Call, tuple[int, ...], torch.dtype]] = {
    "diff": (torch.diff, (3, 2), torch.float32),
    "inner": (lambda x, out: torch.inner(x, x, out=out), (3, 3), torch.float32),
    "nanquantile": (lambda x, out: torch.nanquantile(x, 0.5, dim=1, out=out), (3,), torch.float32),
    "quantile": (lambda x, out: torch.quantile(x, 0.5, dim=1, out=out), (3,), torch.float32),
    "quantiles": (
        lambda x, out: torch.quantile(x, x.new_tensor([0.1, 0.2]), 1, out=out),
        (2, 3),
        torch.float32,
    ),
    "ndtr": (torch.special.ndtr, (3, 3), torch.float32),
    "take along": (
        lambda x, out: torch.take_along_dim(x, ONES.to(x.device)[None], 0, out=out),
        (1, 3),
        torch.float32,
    ),
    "tensordot": (lambda x, out: torch.tensordot(x, x, 1, out=out), (3, 3), torch.float32),
    "cond": (LINALG.cond, (), torch.float32),
    "cond, Frobenius": (lambda x, out: LINALG.cond(x, "fro", out=out), (), torch.float32),
    "matrix norm": (LINALG.matrix_norm, (), torch.float32),
    "matrix norm, 1": (lambda x, out: LINALG.matrix_norm(x, 1, out=out), (), torch.float32),
    "matrix power": (lambda x, out: LINALG.matrix_power(x, 3, out=out), (3, 3), torch.float32),
    "matrix rank": (LINALG.matrix_rank, (), torch.long),
    "matrix rank, tolerance": (
        lambda x, out: LINALG.matrix_rank(x, tol=x.new_tensor(0.1), out=out),
        (),
        torch.long,
    ),
    "several products": (lambda x, out: LINALG.multi_dot([x, x, x], out=out), (3, 3), torch.float32),
    "a chain of products": (lambda x, out: torch.chain_matmul(x, x, out=out), (3, 3), torch.float32),
    "norm": (LINALG.norm, (), torch.float32),
    "norm, nuclear": (lambda x, out: LINALG.norm(x, "nuc", out=out), (), torch.float32),
    "pseudo-inverse": (LINALG.pinv, (3, 3), torch.float32),
    "pseudo-inverse, tolerance": (
        lambda x, out: LINALG.pinv(x, atol=0.0, rtol=0.1, out=out),
        (3, 3),
        torch.float32,
    ),
    "tensor inverse": (lambda x, out: LINALG.tensorinv(x, ind=1, out=out), (3, 3), torch.float32),
    "tensor solve": (lambda x, out: LINALG.tensorsolve(x, x[0], out=out), (3,), torch.float32),
    "dot products": (lambda x, out: LINALG.vecdot(x, x, out=out), (3,), torch.float32),
}

X = torch.tensor([[3.0, 1.0, -2.0], [0.5, 4.0, 1.0], [1.0, -1.0, 5.0]])


@pytest.mark.parametrize("direction", ["to the CPU", "to the device"])
@pytest.mark.parametrize("case", CALLS)
def test_out_stays_where_it_is_and_gets_the_result(case: str, direction: str):
    call, shape, dtype = CALLS[case]
    expected = call(X, out=torch.empty(shape, dtype=dtype))
    source, target = (M, "cpu") if direction == "to the CPU" else ("cpu", M)
    out = torch.empty(shape, dtype=dtype, device=target)
    returned = call(X.to(source), out=out)
    assert returned is out and out.device.type == target
    assert torch.equal(out.cpu(), expected)


@torch.inference_mode()
def test_an_empty_out_grows_without_autograd_too():
    x = X.to(M)
    out = torch.empty(0)
    returned = torch.ops.aten.inner.out(x, x, out=out)
    assert returned.data_ptr() == out.data_ptr() and torch.equal(out, torch.inner(X, X))


def test_a_view_that_is_out_writes_its_base():
    base = torch.zeros(2, 3, 3)
    torch.linalg.multi_dot([X.to(M), X.to(M), X.to(M)], out=base[1])
    assert torch.equal(base[1], torch.linalg.multi_dot([X, X, X])) and not base[0].any()
