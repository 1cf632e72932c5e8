"""A part of models that several benchmarks train."""

from __future__ import annotations

from torch.nn import functional as F

from torch import Tensor, nn


class Gated(nn.Module):
    """The SwiGLU feed-forward part."""

    def __init__(self, width: int, inner: int, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=bias) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) to the same."""
        return self.down(F.silu(self.gate(x)) * self.up(x))
