"""A model with an optimizer of its own on each GPU; now and then the weights of all are averaged."""

from contextlib import nullcontext

import torch
import torch.nn as nn

use_cuda = torch.cuda.is_available()
n = torch.cuda.device_count() if use_cuda else 4
torch.manual_seed(0)
start = nn.Sequential(*[nn.Sequential(nn.Linear(24, 24), nn.Tanh()) for _ in range(6)], nn.Linear(24, 1))
inputs = torch.randn(64 * n, 24)
targets = torch.sin(inputs[:, :4].sum(1, keepdim=True))
makers = [
    lambda p: torch.optim.Adam(p, lr=2e-3, foreach=True),
    lambda p: torch.optim.SGD(p, lr=2e-2, momentum=0.9, foreach=True),
    lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True),
    lambda p: torch.optim.Adagrad(p, lr=1e-2, foreach=True),
]


def on(i):
    return torch.cuda.device(i) if use_cuda else nullcontext()


def here(x):
    return x.cuda(non_blocking=True) if use_cuda else x.clone()


models, optimizers, data = [], [], []
for i in range(n):
    with on(i):
        model = nn.Sequential(
            *[nn.Sequential(nn.Linear(24, 24), nn.Tanh()) for _ in range(6)], nn.Linear(24, 1)
        )
        model.load_state_dict(start.state_dict())
        models.append(model.cuda() if use_cuda else model)
        optimizers.append(makers[i % len(makers)](models[i].parameters()))
        data.append((here(inputs[i::n]), here(targets[i::n])))
assert not use_cuda or [m[0][0].weight.get_device() for m in models] == list(range(n))


def average():
    for parameters in zip(*(m.parameters() for m in models)):
        weights = [p.data for p in parameters]
        if use_cuda:
            mean = torch.cuda.comm.reduce_add(weights, destination=0).div_(n)
            copies = torch.cuda.comm.broadcast(mean, devices=range(n))
        else:
            total = weights[0] + weights[1]
            for w in weights[2:]:
                total.add_(w)
            copies = [total.div_(n)] * n
        for parameter, copy in zip(parameters, copies):
            parameter.data.copy_(copy)


for step in range(9):
    losses = []
    for i in range(n):
        with on(i):
            x, y = data[i]
            part = torch.arange(16, device="cuda" if use_cuda else "cpu") * 4 + step % 4
            loss = nn.functional.mse_loss(models[i](x[part]), y[part])
            optimizers[i].zero_grad()
            loss.backward()
            optimizers[i].step()
            losses.append(loss.detach())
    print(f"step {step}", [loss.item() for loss in losses])
    if step % 3 == 2:
        average()
        if use_cuda:
            for i in range(n):
                torch.cuda.synchronize(i)
        print("averaged", [m[-1].weight.sum().item() for m in models])

# The ensemble votes on the first GPU.
with torch.no_grad():
    votes = [model(here(inputs[:8]).to(next(model.parameters()).device)) for model in models]
    mean = torch.stack([v.to(votes[0].device) for v in votes]).mean(0)
    print("votes", mean.flatten().tolist())
if use_cuda:
    assert torch.cuda.current_device() == 0
    assert all(torch.cuda.max_memory_allocated(i) > 0 for i in range(n))
