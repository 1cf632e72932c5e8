"""Small models and their training loops, each deterministic for a seed, for tests that compare bits.

Every `train_*` function builds a model on `device`, trains it for `steps` steps and returns (losses, hash
of the weights). The optimizer's implementation is always named, because PyTorch chooses it by device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torch
from torch import nn

Result = tuple[list[float], str]


def hash_of(module: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class Norm(nn.Module):
    """A model with buffers that a forward writes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.norm(self.first(x))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )
        self.heads, self.dropout = heads, dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = (
            part.view(batch, time, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        y = (
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
            .transpose(1, 2)
            .reshape(batch, time, width)
        )
        x = x + F.dropout(self.out(y), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


def descend(
    optimizer: torch.optim.Optimizer, loss: torch.Tensor, clip: Callable[[], object] | None = None
) -> float:
    """One step of the optimizer; returns the loss. ``clip`` sees the gradients before the step."""
    optimizer.zero_grad()
    loss.backward()
    if clip is not None:
        clip()
    optimizer.step()
    return loss.item()


def loss_of_words(
    model: nn.Module, device: str, vocabulary: int, shape: tuple[int, int], data: torch.Generator
) -> torch.Tensor:
    """Loss of predicting each word of a random batch from those before it."""
    batch = torch.randint(0, vocabulary, shape, generator=data).to(device)
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


class Gpt(nn.Module):
    """Tokens of shape (batch, time) to logits of shape (batch, time, vocabulary)."""

    def __init__(
        self,
        width: int = 64,
        layers: int = 3,
        vocabulary: int = 96,
        tied: bool = False,
        rerun: bool = False,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, 4, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.rerun = rerun

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.rerun else block(x)
        return self.head(self.norm(x))


def train_gpt(
    device: str,
    steps: int,
    tied: bool = False,
    rerun: bool = False,
    width: int = 64,
    layers: int = 3,
    dropout: float = 0.1,
    **implementation: bool,
) -> Result:
    torch.manual_seed(1)
    model = Gpt(width, layers, tied=tied, rerun=rerun, dropout=dropout).to(device)
    if tied:
        assert model.head.weight is model.embed.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **implementation)
    data = torch.Generator().manual_seed(2)
    torch.manual_seed(3)

    def clip() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=implementation.get("foreach"))

    losses = [descend(optimizer, loss_of_words(model, device, 96, (4, 33), data), clip) for _ in range(steps)]
    return losses, hash_of(model)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


def train_resnet(
    device: str, steps: int, channels: int = 16, batch: int = 8, size: int = 16, pool: bool = True
) -> Result:
    """Without `pool` a convolution halves the image: max pooling's backward is not deterministic on CUDA."""
    torch.manual_seed(1)
    half = nn.MaxPool2d(2) if pool else nn.Conv2d(channels, channels, 2, stride=2)
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), half,
        *(Residual(channels) for _ in range(18)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(channels, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=True)
    data = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(steps):
        images = torch.randn(batch, 3, size, size, generator=data).to(device)
        labels = torch.randint(0, 10, (batch,), generator=data).to(device)
        losses.append(descend(optimizer, F.cross_entropy(model(images), labels)))
    return losses, hash_of(model)


class Reader(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed, self.lstm = (
            nn.Embedding(40, 32),
            nn.LSTM(32, 32, num_layers=8, dropout=dropout, batch_first=True),
        )
        self.head = nn.Linear(32, 40)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(tokens))[0])


def train_lstm(device: str, steps: int, dropout: float = 0.2) -> Result:
    torch.manual_seed(1)
    model = Reader(dropout).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)
    data = torch.Generator().manual_seed(2)
    torch.manual_seed(3)
    losses = [descend(optimizer, loss_of_words(model, device, 40, (4, 11), data)) for _ in range(steps)]
    return losses, hash_of(model)


def train_mlp_autocast(device: str, steps: int) -> Result:
    """bfloat16 autocast with a GradScaler that starts high enough to skip steps."""
    torch.manual_seed(1)
    hidden = [layer for _ in range(12) for layer in (nn.Linear(48, 48), nn.ReLU())]
    model = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), *hidden, nn.Linear(48, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**120, growth_interval=4)
    data = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(steps):
        x = torch.randn(32, 32, generator=data).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            output = model(x)
            assert output.dtype == torch.bfloat16
            loss = F.mse_loss(output.float(), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, hash_of(model)


TRAININGS: dict[str, Callable[[str, int], Result]] = {
    "gpt": lambda device, steps: train_gpt(device, steps),
    "gpt-foreach": lambda device, steps: train_gpt(device, steps, foreach=True),
    "gpt-fused": lambda device, steps: train_gpt(device, steps, fused=True),
    "gpt-tied-checkpoint": lambda device, steps: train_gpt(
        device, steps, tied=True, rerun=True, foreach=True
    ),
    "resnet": train_resnet,
    "lstm": train_lstm,
    "mlp-autocast": train_mlp_autocast,
}
