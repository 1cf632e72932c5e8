"""The models of the table, in plain PyTorch: Llama and Qwen shapes, vision transformers, GPT-2, a perceptron.

Each model's ``forward`` takes a batch and returns the loss. ``layers`` are its equal parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.gated import Gated
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch
from torch import Tensor, nn

LOSS_CHUNK = 1024  # Tokens whose logits exist at once in the chunked cross entropy.


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. A size that a kind of model lacks is 0."""

    kind: str  # llama, vit, gpt or perceptron
    layers: int
    width: int
    inner: int = 0  # Width of the feed-forward part.
    heads: int = 0
    groups: int = 0  # Heads of keys and values.
    head: int = 0  # Width of one head.
    words: int = 0  # Tokens of the vocabulary, or classes of images.
    side: int = 0  # Pixels of an image's side.
    patch: int = 0  # Pixels of a patch's side.
    length: int = 0  # Longest sequence of a model that learns its positions.
    tied: bool = True  # Whether a Llama's embedding is also its head.

    def build(self) -> nn.Module:
        """A model of these sizes, on PyTorch's default device and of its default dtype."""
        kinds = {"llama": Llama, "vit": VisionTransformer, "gpt": GPT, "perceptron": Perceptron}
        return kinds[self.kind](self)

    def small(self) -> Shape:
        """The smallest shape of this kind: 2 layers of width 64."""
        return Shape(
            kind=self.kind,
            layers=2,
            width=64,
            inner=128 if self.inner else 0,
            heads=4 if self.heads else 0,
            groups=2 if self.groups and self.groups < self.heads else 4 if self.heads else 0,
            head=16 if self.head else 0,
            words=256 if self.words else 0,
            side=16 if self.side else 0,
            patch=4 if self.patch else 0,
            length=64 if self.length else 0,
            tied=self.tied,
        )


def rotations(length: int, head: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of RoPE, (length, head) each, of the dtype and on the device of ``like``."""
    steps = torch.arange(0, head, 2, device=like.device, dtype=torch.float32) / head
    angles = torch.outer(
        torch.arange(length, device=like.device, dtype=torch.float32), torch.pow(500_000.0, -steps)
    )
    angles = torch.cat((angles, angles), -1)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """RoPE of (batch, heads, length, head)."""
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


class Attention(nn.Module):
    """Self-attention with grouped keys and values; causal with RoPE where rotations are given."""

    def __init__(self, shape: Shape, bias: bool, causal: bool) -> None:
        super().__init__()
        self.shape, self.causal = shape, causal
        inner, grouped = shape.heads * shape.head, shape.groups * shape.head
        self.query = nn.Linear(shape.width, inner, bias=bias)
        self.key = nn.Linear(shape.width, grouped, bias=bias)
        self.value = nn.Linear(shape.width, grouped, bias=bias)
        self.out = nn.Linear(inner, shape.width, bias=bias)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, -1, self.shape.head).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if rope is not None:
            q, k = rotated(q, *rope), rotated(k, *rope)
        if (times := self.shape.heads // self.shape.groups) > 1:
            k, v = (y.repeat_interleave(times, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    """A transformer's layer, normalised before each part."""

    def __init__(self, attention: Attention, feed: nn.Module, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.attention, self.feed = attention, feed
        self.before, self.between = norms

    def forward(self, x: Tensor, *rope: Tensor) -> Tensor:
        """(batch, length, width) to the same; with RoPE's cosines and sines, or without."""
        x = x + self.attention(self.before(x), (rope[0], rope[1]) if rope else None)
        return x + self.feed(self.between(x))


def cross_entropy_of(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The summed loss of some tokens, in float32."""
    return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of all tokens, whose logits exist for LOSS_CHUNK tokens at once and are recomputed."""
    sums = [
        checkpoint(cross_entropy_of, part, weight, wanted, use_reentrant=False, preserve_rng_state=False)
        for part, wanted in zip(hidden.split(LOSS_CHUNK), targets.split(LOSS_CHUNK), strict=True)
    ]
    return torch.stack(sums).sum() / len(targets)


class Llama(nn.Module):
    """A Llama or a Qwen: RMSNorm, RoPE, SwiGLU, grouped attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(
            Layer(
                Attention(shape, bias=False, causal=True),
                Gated(shape.width, shape.inner),
                (nn.RMSNorm(shape.width, eps=1e-5), nn.RMSNorm(shape.width, eps=1e-5)),
            )
            for _ in range(shape.layers)
        )
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.head = self.embedding if shape.tied else nn.Linear(shape.width, shape.words, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """(batch, length) of tokens and of targets to the mean loss."""
        x = self.embedding(tokens)
        rope = rotations(tokens.shape[1], self.shape.head, x)
        for layer in self.layers:
            x = layer(x, *rope)
        return chunked_cross_entropy(self.norm(x).flatten(0, 1), self.head.weight, targets.flatten())


class GPT(nn.Module):
    """A GPT-2: learned positions, LayerNorm, GELU, the embedding is also the head, logits in one piece."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.words, shape.width)
        self.position = nn.Embedding(shape.length, shape.width)
        self.layers = nn.ModuleList(
            Layer(
                Attention(shape, bias=True, causal=True),
                nn.Sequential(
                    nn.Linear(shape.width, shape.inner), nn.GELU(), nn.Linear(shape.inner, shape.width)
                ),
                (nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)),
            )
            for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """(batch, length) of tokens and of targets to the mean loss."""
        x = self.embedding(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class VisionTransformer(nn.Module):
    """A vision transformer with SwiGLU, as DINOv2's giant; patches by a matrix product, not by cuDNN."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.patches = nn.Linear(3 * shape.patch**2, shape.width)
        self.token = nn.Parameter(torch.empty(1, 1, shape.width))
        self.position = nn.Parameter(torch.empty(1, (shape.side // shape.patch) ** 2 + 1, shape.width))
        self.layers = nn.ModuleList(
            Layer(
                Attention(shape, bias=True, causal=False),
                Gated(shape.width, shape.inner, bias=True),
                (nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)),
            )
            for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.words)

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """(batch, 3, side, side) and (batch) of classes to the mean loss."""
        batch, patch, count = len(images), self.shape.patch, self.shape.side // self.shape.patch
        pieces = images.view(batch, 3, count, patch, count, patch).permute(0, 2, 4, 1, 3, 5)
        x = self.patches(pieces.reshape(batch, count**2, -1))
        x = torch.cat((self.token.expand(batch, 1, -1), x), 1) + self.position
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x[:, 0])).float(), targets)


class Perceptron(nn.Module):
    """Linear layers with GELU between them."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(shape.width, shape.width), nn.GELU()) for _ in range(shape.layers)
        )

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """(batch, width) twice to the mean square of the difference."""
        for layer in self.layers:
            x = layer(x)
        return (x - targets).float().square().mean()
