"""Trains the GPT of train_text.py in several processes, as PyTorch's own documentation does it.

Each process has a part of each batch; DistributedDataParallel sums the gradients. On the managed device each
has memory of its own to train in::

    torchrun --nproc-per-node 2 examples/ddp.py --steps 20 --device cpu
    INNKEEPER_NODES=sim:1x110MiB,host:2GiB torchrun --nproc-per-node 2 examples/ddp.py --steps 20

Both give the same weights, and print their hash.
"""

from __future__ import annotations

from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from train_text import GPT, hash_of, load_text, parse

import torch
import torch.distributed as dist


def main() -> None:
    """Trains as the command line says; the first process reports."""
    args = parse(None, device="managed")
    if args.device.startswith("managed"):
        import innkeeper  # noqa: F401  (registers the device)
    dist.init_process_group()
    rank, processes = dist.get_rank(), dist.get_world_size()
    if args.batch % processes != 0:
        raise SystemExit(f"a batch of {args.batch} cannot be parted among {processes} processes")

    text, characters = load_text()
    torch.manual_seed(args.seed)
    model = GPT(characters, args.context, args.width, args.layers, args.heads, args.dropout).to(args.device)
    torch.manual_seed(args.seed + rank)  # each process drops other activations
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=args.lr, weight_decay=0.1, foreach=args.foreach)
    batches = torch.Generator().manual_seed(args.seed)
    for step in range(args.steps):
        first = torch.randint(len(text) - args.context, (args.batch, 1), generator=batches)
        pieces = text[first + torch.arange(args.context + 1)]
        piece = pieces.chunk(processes)[rank].to(args.device)
        loss = F.cross_entropy(wrapped(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    if rank == 0:
        print(f"{processes} processes, weights {hash_of(model)[:12]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
