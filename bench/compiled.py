"""torch.compile: Inductor's gain on the managed device, and on plain PyTorch's CPU, in the same rounds.

Each model's training step (forward, backward, AdamW) runs eager and compiled, as plain PyTorch on the CPU and
managed on the host node, one after the other, the order turned about from round to round. Gains are medians
of the rounds' ratios of real time. First compilations are not timed. Beside them, on the CPU and managed: the
graphs that were compiled, in three steps, and the breaks between them.

    python bench/compiled.py
    python bench/compiled.py --only gpt --rounds 30 --json compiled.json
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
os.environ.setdefault("INNKEEPER_NODES", "host:8GiB")

import innkeeper  # noqa: F401
from rich.console import Console
from rich.table import Table
from torch._dynamo.utils import counters
from train_text import GPT

import torch
from torch import nn


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.one, self.two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        return torch.relu(x + self.two(self.second(torch.relu(self.one(self.first(x))))))


class Gated(nn.Module):
    """A gated unit, as Llama's, beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.RMSNorm(width), nn.Linear(width, 8 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        value, gate = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(nn.functional.silu(gate) * value)


class Rotated(nn.Module):
    """Causal attention with turned queries and keys, of which a few are shared, as Llama's."""

    cosine: torch.Tensor
    sine: torch.Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm, self.size = nn.RMSNorm(width), width // heads
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key_value = nn.Linear(width, width, bias=False)  # half as many
        angles = torch.outer(torch.arange(length), 1e4 ** -torch.linspace(0, 1, self.size // 2 + 1)[:-1])
        self.register_buffer("cosine", angles.cos().repeat(1, 2))
        self.register_buffer("sine", angles.sin().repeat(1, 2))

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        """Of (batch, heads, length, size): the same shape."""
        one, two = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-two, one], -1) * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape: (batch, length, width)."""
        y = self.norm(x)
        query = self.query(y).unflatten(-1, (-1, self.size)).transpose(1, 2)
        key, value = self.key_value(y).unflatten(-1, (2, -1, self.size)).transpose(1, 3).unbind(2)
        key, value = (part.repeat_interleave(2, 1) for part in (key, value))
        mixed = nn.functional.scaled_dot_product_attention(
            self.turned(query), self.turned(key), value, is_causal=True
        )
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Mixer(nn.Module):
    """Parts of a picture mixed by their common features, then each by itself."""

    def __init__(self, parts: int, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(parts, 2 * parts), nn.GELU(), nn.Linear(2 * parts, parts))
        self.along = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape: (batch, parts, width)."""
        x = x + self.across(self.one(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.two(x))


class Grouped(nn.Module):
    """A block of a diffusion model's U-Net: group norms, SiLU, convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        y = self.first(nn.functional.silu(self.one(x)))
        return x + self.second(nn.functional.silu(self.two(y)))


class Experts(nn.Module):
    """Four experts, each for all, weighed by a router's two best."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, 4)
        self.up, self.down = (nn.Parameter(torch.randn(4, width, width) / width**0.5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape: (rows, width)."""
        best, which = self.router(x).softmax(-1).topk(2, -1)
        weights = torch.zeros(len(x), 4, device=x.device).scatter(1, which, best)
        each = nn.functional.gelu(x @ self.up) @ self.down
        return x + (each * weights.t().unsqueeze(-1)).sum(0)


# By name: a model, and an input of it.
MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "gpt": lambda: (GPT(65, 64, 256, 4, 4, 0.0), torch.randint(65, (8, 64))),
    "encoder": lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        ),
        torch.randn(8, 64, 128),
    ),
    "llama": lambda: (
        nn.Sequential(*(part for _ in range(2) for part in (Rotated(128, 8, 64), Gated(128)))),
        torch.randn(8, 64, 128),
    ),
    "gated": lambda: (nn.Sequential(*(Gated(128) for _ in range(3))), torch.randn(8, 128, 128)),
    "mlp": lambda: (
        nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.Tanh()),
        torch.randn(512, 512),
    ),
    "mixer": lambda: (nn.Sequential(*(Mixer(64, 128) for _ in range(2))), torch.randn(8, 64, 128)),
    "experts": lambda: (nn.Sequential(*(Experts(128) for _ in range(2))), torch.randn(512, 128)),
    "residual": lambda: (nn.Sequential(*(Residual(32) for _ in range(3))), torch.randn(8, 32, 32, 32)),
    "grouped": lambda: (nn.Sequential(*(Grouped(32) for _ in range(2))), torch.randn(4, 32, 32, 32)),
    "vision": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 128, 4, 4),
            nn.Flatten(2),
            nn.Linear(64, 64),
            nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True),
            nn.Linear(64, 10),
        ),
        torch.randn(8, 3, 32, 32),
    ),
}


def steps(name: str) -> dict[str, Callable[[], None]]:
    """A training step in each of the four ways."""
    torch.manual_seed(0)
    plain, x = MODELS[name]()
    ways: dict[str, Callable[[], None]] = {}
    for device in ("cpu", "managed"):
        for compiled in (False, True):
            model = copy.deepcopy(plain).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            run = torch.compile(model) if compiled else model
            way = f"{device} {'compiled' if compiled else 'eager'}"
            ways[way] = functools.partial(_step, run, optimizer, x.to(device))
    return ways


def _step(run: Callable[..., torch.Tensor], optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    run(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def measure(name: str, rounds: int, count: int) -> dict[str, float]:
    """Milliseconds of a step in each way, the gains, the compiled graphs and their breaks."""
    torch.compiler.reset()  # a function has so many compiled forms, and these models share some
    ways = steps(name)
    made: dict[str, float] = {}
    for way, step in ways.items():
        counters.clear()
        for _ in range(3):
            step()
        device = way.split()[0]
        if way.endswith("compiled"):
            made[f"graphs, {device}"] = counters["stats"]["unique_graphs"]
            made[f"breaks, {device}"] = sum(counters["graph_break"].values())
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        order = list(ways)[:: 1 if number % 2 == 0 else -1]
        for way in order:
            began = time.perf_counter()
            for _ in range(count):
                ways[way]()
            seconds[way].append((time.perf_counter() - began) / count)

    def ratio(above: str, below: str) -> float:
        return statistics.median(a / b for a, b in zip(seconds[above], seconds[below], strict=True))

    return {way: 1e3 * statistics.median(times) for way, times in seconds.items()} | {
        "gain, cpu": ratio("cpu eager", "cpu compiled"),
        "gain, managed": ratio("managed eager", "managed compiled"),
        "managed to cpu, compiled": ratio("managed compiled", "cpu compiled"),
        **made,
    }


def main() -> None:
    """Runs all and prints their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="of a round (4)")
    parser.add_argument("--only", choices=MODELS, help="one model")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="one round of one model: to see that it works")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.steps, args.only = 1, 1, args.only or "mlp"
    table = Table("model", *(f"{way}, ms" for way in ("CPU", "compiled", "managed", "compiled")),
                  "gain, CPU", "gain, managed", "managed to CPU", "graphs", "breaks",
                  title="a training step")  # fmt: skip
    found = {}
    for name in [args.only] if args.only else MODELS:
        row = found[name] = measure(name, args.rounds, args.steps)
        figures = list(row.values())
        compiled = [f"{row[f'{what}, cpu']} / {row[f'{what}, managed']}" for what in ("graphs", "breaks")]
        table.add_row(
            name,
            *(f"{ms:.2f}" for ms in figures[:4]),
            *(f"{ratio:.2f}x" for ratio in figures[4:7]),
            *compiled,
        )
    Console(soft_wrap=True, width=120).print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
