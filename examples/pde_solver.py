"""Solves Poisson's equation on several grids whose systems together are more than the GPUs hold.

-u_xx - u_yy = f on the unit square, u = 0 on its edge, f such that u is known. The systems are assembled on
the CPU, spread over two simulated GPUs with ``find_device(disperse=True)``, and solved; a system that had to
go to the host meanwhile comes back by itself. The results are checked against the known solution.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import innkeeper

import torch
from torch import Tensor


def assemble(points: int, waves: int) -> tuple[Tensor, Tensor, Tensor]:
    """The five-point system for a grid of ``points`` x ``points`` inner points.

    Returns:
        Matrix ``(points**2, points**2)``, right side ``(points**2,)`` and the known solution u = sin(k pi x)
        sin(k pi y) with k = ``waves``, ``(points**2,)``; all float64 on the CPU.

    """
    width = 1 / (points + 1)
    line = (
        2 * torch.eye(points) - torch.diag(torch.ones(points - 1), 1) - torch.diag(torch.ones(points - 1), -1)
    )
    matrix = (torch.kron(line, torch.eye(points)) + torch.kron(torch.eye(points), line)).double() / width**2
    x = torch.arange(1, points + 1, dtype=torch.float64) * width
    wave = torch.sin(waves * math.pi * x)
    solution = torch.outer(wave, wave).flatten()
    return matrix, 2 * (waves * math.pi) ** 2 * solution, solution


def main(arguments: Sequence[str] | None = None) -> None:
    """Assembles all systems, solves them twice (the first ones have been evicted by then), and checks."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--systems", type=int, default=8)
    p.add_argument("--points", type=int, default=24, help="inner points along each axis")
    args = p.parse_args(arguments)
    matrix_bytes = args.points**4 * 8
    # A node must hold a matrix and its factors (two copies while it solves), and not half of all the systems.
    innkeeper.configure(f"sim:2x{int(3.2 * matrix_bytes)}B,host:1GiB")
    manager = innkeeper.manager()

    systems = []
    for number in range(args.systems):
        matrix, right, solution = assemble(args.points, waves=1 + number % 3)
        with innkeeper.on(manager.find_device(manager.size_estimate(matrix), disperse=True)):
            systems.append((matrix.to("managed"), right.to("managed"), solution))
    for sweep in range(2):
        for number, (matrix, right, solution) in enumerate(systems):
            u = torch.linalg.solve(matrix, right)
            residual = ((matrix @ u - right).norm() / right.norm()).item()
            error = (u.cpu() - solution).abs().max().item()
            limit = ((1 + number % 3) * math.pi / (args.points + 1)) ** 2 / 6  # the scheme is of second order
            print(f"sweep {sweep}, system {number}: residual {residual:.1e}, error {error:.1e}")
            assert residual < 1e-10 and error < limit, (residual, error, limit)

    stats = innkeeper.stats()
    print(innkeeper.summary())
    assert stats["evictions"] > 0 and stats["fetches"] > 0
    for name, node in stats["nodes"].items():
        assert node["peak"] <= node["budget"] and node["recount"] == node["resident"], (name, node)
        assert node["ops"] > 0 or not name.startswith("sim"), f"{name} did nothing"


if __name__ == "__main__":
    main()
