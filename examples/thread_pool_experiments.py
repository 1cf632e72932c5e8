"""A hundred experiments in a thread pool, on simulated GPUs that hold a part of them.

Each experiment trains its own small network inside ``innkeeper.experiment()``: that gives its thread a
preferred node and a random stream, so that the experiments spread over the GPUs by themselves and none
changes another's numbers. A few are then repeated alone, and must give the same bits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import innkeeper
from innkeeper import ManagedModule

import torch
from torch import Tensor, nn


class Net(ManagedModule):
    """From 16 numbers to one. A ManagedModule needs no ``.to``; every second one drops out."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(16, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, width), nn.Tanh()
        )
        self.last = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, 16)`` to ``(batch, 1)``."""
        return self.last(self.layers(x))


def run_experiment(number: int, steps: int, width: int) -> tuple[list[float], Tensor]:
    """Learns the mean of its inputs. Returns the losses and the last layer's weights, on the CPU."""
    with innkeeper.experiment(f"net {number}"):
        generator = torch.Generator().manual_seed(number)
        net = Net(width, dropout=0.1 * (number % 2))
        with torch.no_grad():
            for parameter in net.parameters():  # torch's default generator is shared by all threads
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / width**0.5)
        torch.managed.manual_seed(number)
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
        losses = []
        for _ in range(steps):
            x = torch.randn(32, 16, generator=generator)
            y = x.mean(1, keepdim=True).to("managed")
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, net.last.weight.detach().cpu()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all experiments, repeats some, and checks the engine's statistics."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--experiments", type=int, default=100)
    p.add_argument("--threads", type=int, default=12)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--nodes", default="sim:4x256KiB,host:1GiB")
    args = p.parse_args(arguments)
    innkeeper.configure(args.nodes)
    torch.set_num_threads(1)  # parallelism comes from the experiments

    with ThreadPoolExecutor(args.threads) as pool:
        futures = [pool.submit(run_experiment, n, args.steps, args.width) for n in range(args.experiments)]
        results = [future.result() for future in futures]
    stats = innkeeper.stats()
    print(innkeeper.summary())

    better = sum(losses[-1] < losses[0] for losses, _ in results)
    print(f"{better} of {len(results)} experiments learned")
    assert better == len(results)
    for name, node in stats["nodes"].items():
        assert node["peak"] <= node["budget"], (name, node)
        if name.startswith("sim"):
            assert node["ops"] > 0 and node["evictions"] > 0, (name, node)
    for number in range(0, args.experiments, max(1, args.experiments // 4)):
        losses, weights = run_experiment(number, args.steps, args.width)
        assert losses == results[number][0] and torch.equal(weights, results[number][1]), (
            f"net {number} differs"
        )
    print("experiments repeated alone gave the same bits")


if __name__ == "__main__":
    main()
