"""The operators behind torch.nn.SyncBatchNorm: statistics of parts of a batch, as of the whole."""

from __future__ import annotations

import pytest

import torch
from torch import Tensor, nn

EPS = 1e-5


def parts_normed(
    parts: list[Tensor], norm: nn.Module, gradients: list[Tensor]
) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Acts as SyncBatchNorm: outputs and gradients of each part, gradients of weight and bias."""
    counts = torch.tensor([x.numel() / x.size(1) for x in parts], device="managed")
    means, invstds = zip(*(torch.batch_norm_stats(x, EPS) for x in parts), strict=True)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        torch.stack(means),
        torch.stack(invstds),
        norm.running_mean,
        norm.running_var,
        0.1,
        EPS,
        counts,
    )
    outputs = [torch.batch_norm_elemt(x, norm.weight, norm.bias, mean, invstd, EPS) for x in parts]
    reduced = [
        torch.batch_norm_backward_reduce(g, x, mean, invstd, norm.weight, True, True, True)
        for x, g in zip(parts, gradients, strict=True)
    ]
    sum_dy, sum_dy_xmu = (torch.stack(each).sum(0) for each in list(zip(*reduced, strict=True))[:2])
    inputs = [
        torch.batch_norm_backward_elemt(
            g, x, mean, invstd, norm.weight, sum_dy, sum_dy_xmu, counts.to(torch.int32)
        )
        for x, g in zip(parts, gradients, strict=True)
    ]
    of_weight, of_bias = (torch.stack(each).sum(0) for each in list(zip(*reduced, strict=True))[2:])
    return outputs, inputs, of_weight, of_bias


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 5), (6, 3, 4, 4), (6, 3, 2, 2, 2)], ids=len)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_parts_of_a_batch_are_normed_as_the_whole(shape: tuple[int, ...], dtype: torch.dtype):
    torch.manual_seed(0)
    whole = torch.randn(shape, dtype=dtype) * 3 + 1
    gradient = torch.randn(shape, dtype=dtype)
    norm = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)](3).to(
        dtype
    )
    norm.weight.uniform_(), norm.bias.uniform_()
    mine = type(norm)(3).to(dtype)
    mine.load_state_dict(norm.state_dict())
    mine.to("managed")
    with torch.enable_grad():
        leaf = whole.clone().requires_grad_()
        expected = norm(leaf)
        (expected * gradient).sum().backward()
    parts = [part.clone() for part in whole.to("managed").split([2, 4])]  # Parts of different sizes.
    outputs, inputs, of_weight, of_bias = parts_normed(
        parts, mine, [part.clone() for part in gradient.to("managed").split([2, 4])]
    )
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(torch.cat(outputs).cpu(), expected.detach(), **close)
    torch.testing.assert_close(torch.cat(inputs).cpu(), leaf.grad, **close)
    torch.testing.assert_close(of_weight.cpu(), norm.weight.grad, **close)
    torch.testing.assert_close(of_bias.cpu(), norm.bias.grad, **close)
    torch.testing.assert_close(mine.running_mean.cpu(), norm.running_mean, **close)
    torch.testing.assert_close(mine.running_var.cpu(), norm.running_var, **close)


@torch.no_grad()
def test_half_precision_has_statistics_in_float32():
    x = torch.randn(64, 3, device="managed").to(torch.bfloat16)
    mean, invstd = torch.batch_norm_stats(x, EPS)
    assert mean.dtype == invstd.dtype == torch.float32
    out = torch.batch_norm_elemt(x, None, None, mean, invstd, EPS)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(mean.cpu(), x.float().mean(0).cpu())
    torch.testing.assert_close(out.float().std(0, unbiased=False).cpu(), torch.ones(3), rtol=0.02, atol=0.02)
