"""Trains a small GPT to predict the characters of Python's own documentation.

An ordinary PyTorch script: it knows nothing of memory. With ``--device managed`` the same lines train in as
little memory as there is::

    python examples/train_text.py --steps 50
    INNKEEPER_NODES=sim:1x110MiB,host:2GiB python examples/train_text.py --device managed --steps 50
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import pydoc_data.topics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch.nn import functional as F

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and beside a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def attend(self, x: Tensor) -> Tensor:
        """Causal self-attention, ``(batch, length, width)`` to the same."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return F.dropout(self.projection(y.transpose(1, 2).reshape(batch, length, width)), dropout)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, length, width)`` to the same."""
        x = x + self.attend(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """Characters ``(batch, context)`` int64 in, logits ``(batch, context, characters)`` float32 out."""

    def __init__(
        self, characters: int, context: int, width: int, layers: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        self.apply(self.initialise)
        for name, parameter in self.named_parameters():
            if name.endswith(
                ("projection.weight", "mlp.2.weight")
            ):  # keeps the additions to the residual small
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Draws a layer's weights, as GPT-2 does."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of the character that follows each character of ``text``."""
        places = torch.arange(text.shape[1], device=text.device)
        x = self.dropout(self.character(text) + self.position(places))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def load_text() -> tuple[Tensor, int]:
    """All topics of ``help()`` as numbers of characters (int64, CPU), and how many characters there are."""
    text = "\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    number = {character: n for n, character in enumerate(sorted(set(text)))}
    return torch.tensor([number[character] for character in text]), len(number)


def parse(arguments: Sequence[str] | None, device: str = "cpu") -> argparse.Namespace:
    """The command line's options."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default=device)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--batch", type=int, default=8, help="texts in a step")
    p.add_argument("--context", type=int, default=64, help="characters in a text")
    p.add_argument("--width", type=int, default=320)
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--heads", type=int, default=5)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--warm-up", type=int, default=10, help="steps until the full learning rate")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument(
        "--foreach",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="optimizer and clipping by lists of tensors (not on the CPU, says PyTorch)",
    )
    p.add_argument(
        "--result", type=Path, help="write losses and the hash of the weights to this file, as JSON"
    )
    return p.parse_args(arguments)


@dataclass
class Result:
    """A run's result. ``sha256`` is over all weights in the order of ``state_dict``."""

    device: str
    parameters: int
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    sha256: str = ""


def hash_of(model: nn.Module) -> str:
    """The SHA-256 of all weights' bytes."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def progress_bar() -> Progress:
    """A line on standard error with the steps done and the loss."""
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    return Progress(*columns, console=Console(stderr=True), refresh_per_second=4)


def train(args: argparse.Namespace) -> Result:
    """Trains from the seed, which gives the same weights on every device that runs the same kernels."""
    device = torch.device(args.device)
    text, characters = load_text()
    torch.manual_seed(args.seed)
    model = GPT(characters, args.context, args.width, args.layers, args.heads, args.dropout).to(device)
    torch.manual_seed(args.seed)  # makes later random numbers independent of how the model was built
    # Makes the batches independent of the device's random numbers.
    batches = torch.Generator().manual_seed(args.seed)

    # PyTorch would choose foreach by the device; named, the same kernels run everywhere.
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, foreach=args.foreach)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, args.warm_up, args.steps)
    )
    result = Result(args.device, sum(p.numel() for p in model.parameters()))
    start = time.perf_counter()
    with progress_bar() as progress:
        task = progress.add_task(args.device, total=args.steps, loss="")
        for _ in range(args.steps):
            first = torch.randint(len(text) - args.context, (args.batch, 1), generator=batches)
            piece = text[first + torch.arange(args.context + 1)].to(device)
            loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=args.foreach)
            optimizer.step()
            schedule.step()
            result.losses.append(loss.item())
            progress.update(task, advance=1, loss=f"loss {result.losses[-1]:.3f}")
    result.seconds = time.perf_counter() - start
    result.sha256 = hash_of(model)
    return result


def learning_rate(step: int, warm_up: int, steps: int) -> float:
    """The factor for ``step``: rises for ``warm_up`` steps, then falls along half a cosine to a tenth."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))


def main(arguments: Sequence[str] | None = None) -> Result:
    """Trains as the command line says."""
    args = parse(arguments)
    if args.device.startswith("managed"):
        import innkeeper  # noqa: F401  (registers the device)
    result = train(args)
    print(
        f"{result.parameters:,} parameters, loss {result.losses[0]:.3f} -> {result.losses[-1]:.3f}, "
        f"{result.seconds:.1f} s, weights {result.sha256[:12]}",
        file=sys.stderr,
    )
    if args.result is not None:
        args.result.write_text(json.dumps(asdict(result)))
    return result


if __name__ == "__main__":
    main()
