"""Prefetches batches on a side stream and times the steps by events, as NVIDIA's examples do."""

import torch
import torch.nn as nn

use_cuda = torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")
torch.manual_seed(0)
batches = [(torch.randn(64, 96), torch.randn(64, 1)) for _ in range(8)]


class Prefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream() if use_cuda else None
        self.preload()

    def preload(self):
        try:
            x, y = next(self.loader)
        except StopIteration:
            self.x = self.y = None
            return
        if not use_cuda:
            self.x, self.y = x * 2, y
            return
        with torch.cuda.stream(self.stream):
            self.x = x.pin_memory().cuda(non_blocking=True)
            self.y = y.pin_memory().cuda(non_blocking=True)
            self.x = self.x.mul_(2)

    def next(self):
        if use_cuda:
            torch.cuda.current_stream().wait_stream(self.stream)
        x, y = self.x, self.y
        if use_cuda and x is not None:
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(torch.cuda.current_stream())
        self.preload()
        return x, y


model = nn.Sequential(*[nn.Sequential(nn.Linear(96, 96), nn.ReLU()) for _ in range(6)], nn.Linear(96, 1)).to(
    device
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
if use_cuda:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.reset_peak_memory_stats()
    start.record()
    torch.cuda.nvtx.range_push("training")
prefetcher = Prefetcher(batches)
x, y = prefetcher.next()
while x is not None:
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item()!r}")
    x, y = prefetcher.next()
if use_cuda:
    torch.cuda.nvtx.range_pop()
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0
    free, total = torch.cuda.mem_get_info()
    assert 0 <= free <= total and torch.cuda.max_memory_allocated() <= total
    torch.cuda.empty_cache()
    major, minor = torch.cuda.get_device_capability()
    assert (major, minor) >= (7, 0)
