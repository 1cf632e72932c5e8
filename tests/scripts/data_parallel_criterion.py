"""A model and its loss in parallel on two GPUs, in the manner of PyTorch-Encoding: nothing is gathered."""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call
from torch.nn.parallel import DataParallel
from torch.nn.parallel._functions import Broadcast
from torch.nn.parallel.scatter_gather import scatter_kwargs

cuda = torch.cuda.is_available()
n_gpus = torch.cuda.device_count() if cuda else 2
device = torch.device("cuda:0" if cuda else "cpu")


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *inputs):
        ctx.target_gpus = [x.get_device() for x in inputs]
        return torch.cuda.comm.reduce_add(sorted(inputs, key=lambda x: x.get_device()))

    @staticmethod
    def backward(ctx, grad):
        return Broadcast.apply(ctx.target_gpus, grad)


class DataParallelModel(DataParallel):
    def scatter(self, inputs, kwargs, device_ids):
        return scatter_kwargs(tuple(x.contiguous() for x in inputs), kwargs, device_ids, dim=self.dim)

    def gather(self, outputs, output_device):
        return outputs

    def forward(self, *inputs):
        if self.device_ids:
            return super().forward(*inputs)
        parts = list(zip(*(x.chunk(n_gpus) for x in inputs)))
        # Only the first replica's buffers are the module's own.
        buffers = [{name: b.clone() for name, b in self.module.named_buffers()} for _ in parts[1:]]
        others = [functional_call(self.module, b, part) for b, part in zip(buffers, parts[1:])]
        return [self.module(*parts[0]), *others]


class DataParallelCriterion(DataParallel):
    def forward(self, outputs, *targets):
        if not self.device_ids:
            parts = zip(outputs, *(t.chunk(n_gpus) for t in targets))
            return sum(self.module(*part) for part in parts) / n_gpus
        targets, _ = self.scatter(targets, {}, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids[: len(outputs)])

        def worker(replica, output, target):
            with torch.cuda.device_of(output):
                return replica(output, *target)

        with ThreadPoolExecutor(len(outputs)) as pool:
            losses = list(pool.map(worker, replicas, outputs, targets))
        return Reduce.apply(*losses) / len(losses)


class WeightedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.linspace(0.5, 1.5, 5))

    def forward(self, logits, target):
        return F.cross_entropy(logits, target, self.weight)


def conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(True)
    )


torch.manual_seed(0)
net = nn.Sequential(conv(3, 8), conv(8, 8), conv(8, 16), conv(16, 16), nn.Conv2d(16, 5, 1)).to(device)
model, criterion = DataParallelModel(net), DataParallelCriterion(WeightedLoss().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True)
for step in range(6):
    images = torch.randn(8, 3, 12, 12)
    masks = (images.sum(1) + 2).clamp(0, 4).long()
    outputs = model(images.to(device))
    assert len(outputs) == n_gpus
    loss = criterion(outputs, masks.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    correct = sum((o.argmax(1).cpu() == m).sum().item() for o, m in zip(outputs, masks.chunk(n_gpus)))
    print(f"step {step} loss {loss.item()!r} correct {correct}")
print("running mean", net[0][1].running_mean.tolist(), net[3][1].num_batches_tracked.item())
