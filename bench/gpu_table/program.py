"""A training program as its author writes it, for one workload: model, batch, optimizer, step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint

import torch
from gpu_table.workloads import Workload
from torch import Tensor, nn

PIECE = 1 << 24  # Elements that are filled at once, so that filling takes little memory.


def noise(first: int, count: int, stream: int, device: Any) -> Tensor:
    """Hashed integers from 0 to 65535, the same on every device: no generator is drawn from."""
    x = torch.arange(first, first + count, dtype=torch.int64, device=device)
    x.add_(stream * 0x9E3779B1).bitwise_and_(0xFFFFFFFF)
    for factor in (0x45D9F3B, 0x119DE1F3):
        x.bitwise_xor_(x >> 16).mul_(factor).bitwise_and_(0xFFFFFFFF)
    return x.bitwise_xor_(x >> 16).bitwise_and_(0xFFFF)


def fill(x: Tensor, stream: int, scale: float) -> None:
    """Writes numbers between -scale and scale."""
    flat = x.detach().view(-1)
    for first in range(0, flat.numel(), PIECE):
        piece = flat[first : first + PIECE]
        uniform = noise(first, piece.numel(), stream, x.device).to(torch.float32)
        piece.copy_(uniform.mul_(2 / 65536).sub_(1).mul_(scale))


def initialize(model: nn.Module) -> None:
    """Gives each parameter its values: norms' weights 1, biases 0, all else noise."""
    for number, (name, x) in enumerate(model.named_parameters()):
        with torch.no_grad():
            if x.dim() > 1:
                fill(x, number, scale=(1 / x.shape[-1]) ** 0.5)
            else:
                x.fill_(0.0 if name.endswith("bias") else 1.0)


class Program:
    """The program. A way of having memory changes its attributes (`ways.py`)."""

    model: Any
    optimizer: torch.optim.Optimizer
    batch: tuple[Tensor, ...]

    def __init__(self, workload: Workload, cap_gib: float | None, device: str) -> None:
        self.workload, self.cap_gib, self.device = workload, cap_gib, device
        self.make_optimizer: Callable[[Any], torch.optim.Optimizer] = self.adamw

    @staticmethod
    def adamw(parameters: Any) -> torch.optim.Optimizer:
        """The optimizer, whose states have the parameters' dtype."""
        return torch.optim.AdamW(parameters, lr=1e-4, fused=True)

    def build(self) -> None:
        """Makes model and batch on the device."""
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            self.model = self.workload.shape.build()
        self.model.to_empty(device=self.device)
        initialize(self.model)
        if self.workload.checkpointed:
            for layer in self.model.layers:
                layer.forward = partial(
                    checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
                )
        self.batch = self.make_batch()

    def make_batch(self) -> tuple[Tensor, ...]:
        """Inputs and targets."""
        work, shape = self.workload, self.workload.shape
        if work.length:
            count = work.batch * work.length
            return tuple(
                (noise(0, count, stream, self.device) % shape.words).view(work.batch, work.length)
                for stream in (1001, 1002)
            )
        if shape.kind == "vit":
            images = torch.empty(work.batch, 3, shape.side, shape.side, device=self.device)
            fill(images, 1001, scale=1.0)
            return images, noise(0, work.batch, 1002, self.device) % shape.words
        pair = [torch.empty(work.batch, shape.width, device=self.device) for _ in range(2)]
        for stream, x in enumerate(pair, start=1001):
            fill(x, stream, scale=1.0)
        return tuple(pair)

    def loss(self) -> Tensor:
        """The forward pass of the whole batch."""
        return self.model(*self.batch)

    def backward(self) -> None:
        """Both passes of the whole batch."""
        self.loss().backward()

    def step(self) -> None:
        """One training step."""
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
