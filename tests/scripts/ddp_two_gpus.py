"""DistributedDataParallel of a model on two GPUs of each process: without device_ids."""

import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoGpus(nn.Module):
    """The first layer on one device, the second on another."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second
        self.inner = nn.Linear(8, 16).to(first)
        self.outer = nn.Linear(16, 4).to(second)

    def forward(self, x):
        hidden = torch.relu(self.inner(x.to(self.first)))
        return self.outer(hidden.to(self.second))


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


torch.distributed.init_process_group("nccl")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.manual_seed(0)
batches = [torch.randn(8, 8) for _ in range(4)]
torch.manual_seed(1)
model = DistributedDataParallel(TwoGpus(2 * rank, 2 * rank + 1))
weights = train(model, [batch[rank::world] for batch in batches])
where = [str(p.device) for p in model.parameters()]
torch.manual_seed(1)
alone = train(TwoGpus("cpu", "cpu"), batches)
same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(weights, alone, strict=True))
# One write, so that it does not mix with the other process's output.
os.write(1, f"{rank} {same} {where}\n".encode())
torch.distributed.destroy_process_group()
