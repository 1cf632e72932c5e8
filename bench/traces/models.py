"""Models of realistic shapes, in plain PyTorch, for ``record.py`` and benchmarks.

The recording computes nothing (``data=off``), so their size does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from support.gated import Gated
from torch.nn import functional as F

import torch
from torch import Tensor, nn

Loss = Callable[[], Tensor]


class Attention(nn.Module):
    """Self-attention with as many keys as ``groups`` says."""

    def __init__(self, width: int, heads: int, groups: int, causal: bool, bias: bool) -> None:
        super().__init__()
        self.heads, self.groups, self.causal = heads, groups, causal
        self.size = width // heads
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, groups * self.size, bias=bias)
        self.value = nn.Linear(width, groups * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (
            f(x).view(batch, length, self.groups, self.size).transpose(1, 2) for f in (self.key, self.value)
        )
        if self.groups != self.heads:
            k, v = (y.repeat_interleave(self.heads // self.groups, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Experts(nn.Module):
    """A mixture of experts, each of which gets as many tokens as the others: two for each token."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Gated(width, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        flat = x.flatten(0, 1)
        scores = self.router(flat).softmax(-1)
        share = 2 * len(flat) // len(self.experts)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            weight, chosen = scores[:, i].topk(share)
            out = out.index_add(0, chosen, expert(flat[chosen]) * weight[:, None].to(flat.dtype))
        return out.view_as(x)


class Layer(nn.Module):
    """A transformer's layer, normalised before each part."""

    def __init__(self, attention: nn.Module, forward: nn.Module, norms: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.attention, self.feed = attention, forward
        self.before, self.between = norms

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) to the same."""
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Transformer(nn.Module):
    """Tokens to the scores of all words."""

    def __init__(self, words: int, width: int, length: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.place = nn.Embedding(length, width)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to (batch, length, words)."""
        x = self.embedding(tokens) + self.place.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Adapted(nn.Module):
    """A frozen linear map with an adapter of low rank (LoRA)."""

    def __init__(self, linear: nn.Linear, rank: int = 16) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """As the linear map's."""
        return self.linear(x) + self.up(self.down(x))


def gpt(width: int, layers: int, heads: int, length: int, words: int, causal: bool = True) -> nn.Module:
    """A GPT-2, or, not causal, a BERT."""

    def layer() -> nn.Module:
        feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        norms = (nn.LayerNorm(width), nn.LayerNorm(width))
        return Layer(Attention(width, heads, heads, causal, bias=True), feed, norms)

    return Transformer(words, width, length, [layer() for _ in range(layers)])


def llama(
    width: int, layers: int, heads: int, groups: int, inner: int, length: int, experts: int = 0
) -> nn.Module:
    """The shapes of a Llama, or of a Mixtral."""

    def layer() -> nn.Module:
        feed = Experts(width, inner, experts) if experts else Gated(width, inner)
        norms = (nn.RMSNorm(width), nn.RMSNorm(width))
        return Layer(Attention(width, heads, groups, causal=True, bias=False), feed, norms)

    return Transformer(32000, width, length, [layer() for _ in range(layers)])


def with_adapters(model: nn.Module) -> nn.Module:
    """Freezes a Llama but for adapters on its attention."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, Attention):
            for name in ("query", "key", "value", "out"):
                setattr(module, name, Adapted(getattr(module, name)))
    return model


class Bottleneck(nn.Module):
    """A block of a ResNet-50."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * inner:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to 4 * inner channels."""
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50() -> nn.Module:
    """He et al., 2015, table 1."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 64
    for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(blocks):
            parts.append(Bottleneck(channels, inner, stride if i == 0 else 1))
            channels = 4 * inner
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class UNet(nn.Module):
    """Ronneberger et al., 2015, with padding and group norm: images to images."""

    def __init__(self, width: int = 64, depth: int = 4) -> None:
        super().__init__()

        def double(given: int, made: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU(),
                nn.Conv2d(made, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU(),
            )  # fmt: skip

        sizes = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in reversed(sizes[:-1]))
        self.join = nn.ModuleList(double(2 * a, a) for a in reversed(sizes[:-1]))
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to the same."""
        seen = []
        for i, part in enumerate(self.down):
            x = part(x if i == 0 else F.max_pool2d(x, 2))
            seen.append(x)
        for up, join, before in zip(self.up, self.join, reversed(seen[:-1]), strict=True):
            x = join(torch.cat([up(x), before], 1))
        return self.out(x)


class Recurrent(nn.Module):
    """A language model of LSTM layers.

    Record it on a CPU with AVX-512: of a layer in bfloat16 PyTorch makes one operator there, as on a GPU;
    elsewhere it makes hundreds.
    """

    def __init__(self, words: int = 32000, width: int = 1024, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) to (batch, length, words)."""
        return self.head(self.layers(self.embedding(tokens))[0])


def words_loss(model: nn.Module, batch: int, length: int) -> Loss:
    """Of the next words."""
    tokens = torch.zeros(batch, length, dtype=torch.long, device="managed")
    return lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def image_loss(model: nn.Module, batch: int, side: int, classes: bool) -> Loss:
    """Of classes, or of images."""
    images = torch.zeros(batch, 3, side, side, device="managed")
    labels = torch.zeros(batch, dtype=torch.long, device="managed")
    if classes:
        return lambda: F.cross_entropy(model(images), labels)
    return lambda: F.mse_loss(model(images), images)


@dataclass
class Case:
    """A model, its constructor, and its loss for training."""

    make: Callable[[], nn.Module]
    loss: Callable[[nn.Module], Loss]
    half: bool = False  # all of it in bfloat16; else autocast

    def training(self, **form: bool) -> Callable[[], None]:
        """Makes the model on the managed device, and a training step of it by AdamW of this form."""
        torch.set_default_dtype(torch.bfloat16 if self.half else torch.float32)
        with torch.device("managed"):
            model = self.make()
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), **form)
        loss = self.loss(model)

        def step() -> None:
            with torch.autocast("managed", torch.bfloat16, enabled=not self.half):
                value = loss()
            optimizer.zero_grad()
            value.backward()
            del value
            optimizer.step()

        return step


CASES = {
    "gpt2-medium": Case(lambda: gpt(1024, 24, 16, 1024, 50257), lambda m: words_loss(m, 8, 1024)),
    "bert-large": Case(lambda: gpt(1024, 24, 16, 512, 30522, causal=False), lambda m: words_loss(m, 16, 512)),
    "llama-1b": Case(lambda: llama(2048, 16, 32, 8, 8192, 2048), lambda m: words_loss(m, 4, 2048), half=True),
    "llama-7b": Case(
        lambda: llama(4096, 32, 32, 32, 11008, 2048), lambda m: words_loss(m, 4, 2048), half=True
    ),
    "llama-7b-lora": Case(
        lambda: with_adapters(llama(4096, 32, 32, 32, 11008, 2048)),
        lambda m: words_loss(m, 4, 2048),
        half=True,
    ),
    "mixture": Case(
        lambda: llama(1024, 12, 16, 4, 3584, 1024, experts=8), lambda m: words_loss(m, 8, 1024), half=True
    ),
    "resnet50": Case(resnet50, lambda m: image_loss(m, 128, 224, classes=True)),
    "unet": Case(UNet, lambda m: image_loss(m, 16, 256, classes=False)),
    "lstm": Case(Recurrent, lambda m: words_loss(m, 64, 64)),
}
