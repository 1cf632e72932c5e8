"""A pipeline of four stages on four GPUs: each batch passes them in micro-batches, as in GPipe."""

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

n_stages, chunks, width = 4, 4, 64
torch.manual_seed(0)


def gpu(i):
    return torch.device(f"cuda:{i}") if torch.cuda.is_available() else torch.device("cpu")


def block():
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
    )


class Stage(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(depth))

    def forward(self, x):
        for each in self.blocks:
            x = x + checkpoint(each, x, use_reentrant=False) if self.training else x + each(x)
        return x


stages = [Stage(3).to(gpu(i)) for i in range(n_stages)]
head = nn.Linear(width, 10).to(gpu(n_stages - 1))


def pipeline(batch):
    micro = list(batch.chunk(chunks))
    # At tick t stage s works on micro-batch t - s, so that all stages work at once.
    for tick in range(chunks + n_stages - 1):
        for s in reversed(range(n_stages)):
            if 0 <= tick - s < chunks:
                micro[tick - s] = stages[s](micro[tick - s].to(gpu(s), non_blocking=True))
    return [head(x) for x in micro]


modules = nn.ModuleList([*stages, head])
optimizer = torch.optim.SGD(modules.parameters(), lr=0.05, momentum=0.9, nesterov=True, foreach=True)
loss_fn = nn.CrossEntropyLoss()
centers = torch.randn(10, width)
for step in range(6):
    labels = torch.randint(0, 10, (32,))
    inputs = centers[labels] + torch.randn(32, width)
    optimizer.zero_grad()
    total = 0.0
    for output, label in zip(pipeline(inputs), labels.to(gpu(n_stages - 1)).chunk(chunks)):
        loss = loss_fn(output, label) / chunks
        loss.backward()
        total += loss.item()
    optimizer.step()
    print(f"step {step} loss {total!r}")

modules.eval()
with torch.no_grad():
    output = torch.cat(pipeline(centers))
    print("correct", (output.argmax(1).cpu() == torch.arange(10)).sum().item(), output.double().sum().item())

# A checkpoint on the last GPU draws the same random numbers again in the backward pass.
noisy = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.5), nn.ReLU()).to(gpu(3))
grads = []
for call in (noisy, lambda x: checkpoint(noisy, x, use_reentrant=True)):
    torch.manual_seed(7)
    x = centers.to(gpu(3)).requires_grad_()
    call(x).sum().backward()
    grads.append(x.grad)
print("same dropout", torch.equal(*grads))
