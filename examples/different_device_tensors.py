"""Tensors on different nodes, without a device in the program: the engine moves them where they are used.

Two simulated GPUs of 1 MiB each and a host. First two tensors are put on different GPUs by hand and added;
then 40 tensors of 128 KiB, five times the memory of both GPUs, are made, summed and checked.
"""

from __future__ import annotations

import innkeeper
from innkeeper import ManagedTensor

import torch


def add_across() -> None:
    """Operands on two nodes: PyTorch sees one device, and the engine moves the smaller operand."""
    with innkeeper.on("sim:0"):
        x = ManagedTensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with innkeeper.on("sim:1"):
        y = ManagedTensor.create(torch.ones(2, 3))
    assert innkeeper.where(x) == ["sim:0"], innkeeper.where(x)
    assert innkeeper.where(y) == ["sim:1"], innkeeper.where(y)
    z = x + y
    assert isinstance(z, ManagedTensor) and x.device == y.device == z.device
    assert z.tolist() == [[2.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    print(f"x was on sim:0 and y on sim:1; x + y is on {innkeeper.where(z)[0]}")


def more_than_fits(count: int = 40, side: int = 181) -> None:
    """Five times the GPUs' memory: unused tensors go to the host and come back for their next use."""
    before = innkeeper.stats()
    tensors = [torch.full((side, side), float(n), device="managed") for n in range(count)]
    total = torch.zeros(side, side, device="managed")
    for tensor in tensors:
        total += tensor
    assert torch.equal(total.cpu(), torch.full((side, side), float(sum(range(count)))))
    after = innkeeper.stats()
    evictions, fetches = after["evictions"] - before["evictions"], after["fetches"] - before["fetches"]
    assert evictions > 0 and fetches > 0, (evictions, fetches)
    print(f"{count} tensors on two GPUs that hold 16 of them: {evictions} evictions, {fetches} fetches")


def main() -> None:
    """Runs both parts and checks that no GPU held more than its budget."""
    innkeeper.configure("sim:2x1MiB,host:64MiB")
    add_across()
    more_than_fits()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["peak"] <= node["budget"] and node["recount"] == node["resident"], (name, node)
    print(innkeeper.summary())


if __name__ == "__main__":
    main()
