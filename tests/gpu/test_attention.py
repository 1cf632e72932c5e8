"""Attention on managed tensors runs the kernel that plain CUDA chooses, with its bits, backward included."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from gpu_device import PLAIN, REAL
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16] if REAL else [torch.float32]
KERNELS = {
    "own choice": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def attend(device: str, dtype: torch.dtype, head: int, mask: bool, causal: bool) -> list[torch.Tensor]:
    torch.manual_seed(3)
    q, k, v = (
        torch.randn(2, 4, 48, head).to(device, dtype).requires_grad_()
        for _ in range(3)
    )  # fmt: skip
    bias = torch.randn(48, 48).to(device, dtype) if mask else None
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)
    output.square().sum().backward()
    chosen = torch._fused_sdp_choice(q, k, v, attn_mask=bias, is_causal=causal)
    return [torch.tensor(chosen), *(x.detach().cpu() for x in (output, q.grad, k.grad, v.grad))]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head", [64, 20])  # Flash attention pads heads to a multiple of 8.
@pytest.mark.parametrize(("mask", "causal"), [(False, True), (False, False), (True, False)])
def test_attention_has_the_bits_of_plain_tensors(
    kernel: str, dtype: torch.dtype, head: int, mask: bool, causal: bool
) -> None:
    wanted = KERNELS[kernel]
    torch.use_deterministic_algorithms(True)
    try:
        with sdpa_kernel(
            [wanted, SDPBackend.MATH] if wanted is not None else list(filter(None, KERNELS.values()))
        ):
            plain = attend(PLAIN, dtype, head, mask, causal)
            managed = attend("managed", dtype, head, mask, causal)
    finally:
        torch.use_deterministic_algorithms(False)
    names = ("choice", "output", "query's gradient", "key's gradient", "value's gradient")
    for name, expected, given in zip(names, plain, managed, strict=True):
        assert torch.equal(expected, given), name
