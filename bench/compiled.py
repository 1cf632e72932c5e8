"""torch.compile: what Inductor gains on the managed device, and on plain PyTorch's CPU, in the same rounds.

Each model's training step (forward, backward, AdamW) runs eager and compiled, as plain PyTorch on the CPU and
managed on the host node, one after the other, the order turned about from round to round. Gains are medians
of the rounds' ratios of real time. First compilations are not timed.

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


def _gated(width: int) -> nn.Module:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up = nn.RMSNorm(width), nn.Linear(width, 8 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            value, gate = self.up(self.norm(x)).chunk(2, -1)
            return x + self.down(nn.functional.silu(gate) * value)

    return nn.Sequential(*(Gated() for _ in range(3)))


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
    "gated": lambda: (_gated(128), torch.randn(8, 128, 128)),
    "mlp": lambda: (
        nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.Tanh()),
        torch.randn(512, 512),
    ),
    "residual": lambda: (nn.Sequential(*(Residual(32) for _ in range(3))), torch.randn(8, 32, 32, 32)),
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
    """Milliseconds of a step in each way, and the gains."""
    ways = steps(name)
    for step in ways.values():
        for _ in range(3):
            step()
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
        args.rounds, args.steps, args.only = 1, 1, "mlp"
    table = Table("model", *(f"{way}, ms" for way in ("CPU", "compiled", "managed", "compiled")),
                  "gain, CPU", "gain, managed", "managed to CPU", title="a training step")  # fmt: skip
    found = {}
    for name in [args.only] if args.only else MODELS:
        row = found[name] = measure(name, args.rounds, args.steps)
        figures = list(row.values())
        table.add_row(name, *(f"{ms:.2f}" for ms in figures[:4]), *(f"{ratio:.2f}x" for ratio in figures[4:]))
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
