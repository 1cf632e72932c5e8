"""Operators composed for most devices that have a kernel for CUDA: GPUs behind managed use the kernel."""

from __future__ import annotations

import pytest

import torch
from torch import nn


def normed(device: str, shape: tuple[int, ...], affine: bool) -> tuple[str, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.RMSNorm(shape, elementwise_affine=affine).to(device)
    x = torch.randn(3, 4, 8).to(device).requires_grad_()
    y = model(x)
    y.square().sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        alone = model(x)
    found = [x.grad, y.detach(), alone, *(weight.grad for weight in model.parameters())]
    return type(y.grad_fn).__name__, [tensor.cpu() for tensor in found]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(8,), (4, 8)])
def test_rms_norm_is_one_kernel(shape: tuple[int, ...], affine: bool) -> None:
    node, expected = normed("cuda", shape, affine)
    managed_node, found = normed("managed", shape, affine)
    assert managed_node == node == "FusedRmsNormBackward0"
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    for a, b in zip(found, normed("cpu", shape, affine)[1], strict=True):
        torch.testing.assert_close(a, b)
