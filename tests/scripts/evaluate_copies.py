"""Trains on one GPU and evaluates on all, by copies of the model, with a stream and an event on each."""

import copy
import io
from contextlib import nullcontext

import torch
import torch.nn as nn

use_cuda = torch.cuda.is_available()
n = torch.cuda.device_count() if use_cuda else 2
devices = [torch.device(f"cuda:{i}" if use_cuda else "cpu") for i in range(n)]
torch.manual_seed(0)
model = nn.Sequential(
    *[nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()) for _ in range(6)], nn.Linear(32, 4)
).to(devices[0])
centers = torch.randn(4, 32)
labels = torch.randint(0, 4, (256,))
images = centers[labels] + torch.randn(256, 32)
criterion = nn.CrossEntropyLoss()


def train(model, optimizer, device, steps):
    model.train()
    for step in steps:
        part = slice(32 * step, 32 * (step + 1))
        x, y = images[part].to(device), labels[part].to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item()!r}")


def evaluate(copies, streams):
    """Each copy takes every n-th batch, in the stream of its GPU."""
    events, sums = [], []
    for i, (copy_, device) in enumerate(zip(copies, devices)):
        copy_.eval()
        with torch.no_grad(), torch.cuda.stream(streams[i]) if use_cuda else nullcontext():
            if use_cuda:
                assert torch.cuda.current_stream(i) == streams[i] and torch.cuda.current_device() == i
                events.append(torch.cuda.Event())
            total = torch.zeros(2, dtype=torch.double, device=device)
            for x, y in list(zip(images.split(32), labels.split(32)))[i::n]:
                output = copy_(x.to(device, non_blocking=True))
                y = y.to(device, non_blocking=True)
                total[0] += criterion(output, y)
                total[1] += (output.argmax(1) == y).sum()
            if use_cuda:
                events[i].record(streams[i])
            sums.append(total)
    for event in events:
        torch.cuda.current_stream(0).wait_event(event)
    total = torch.zeros(2, dtype=torch.double, device=devices[0])
    for each in sums:
        total += each.to(devices[0])
    return (total / len(images.split(32))).tolist()


optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
train(model, optimizer, devices[0], range(3))
copies = [copy.deepcopy(model).to(device) for device in devices]
streams = [torch.cuda.Stream(device) for device in devices] if use_cuda else []
print("evaluation", evaluate(copies, streams))
checkpoint = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)

train(model, optimizer, devices[0], range(3, 6))
for each in copies:
    each.load_state_dict(model.state_dict())
print("evaluation", evaluate(copies, streams))

# Training goes on from the checkpoint on the last GPU, to the same losses.
last = devices[-1]
checkpoint.seek(0)
state = torch.load(checkpoint, map_location={"cuda:0": str(last)})
assert state["model"]["0.0.weight"].device == last
resumed = copy.deepcopy(copies[0]).to(last)
resumed.load_state_dict(state["model"])
optimizer = torch.optim.Adam(resumed.parameters(), lr=1.0, foreach=True)
optimizer.load_state_dict(state["optimizer"])
train(resumed, optimizer, last, range(3, 6))
print("same", all(torch.equal(a, b.to(a.device)) for a, b in zip(model.parameters(), resumed.parameters())))
model.load_state_dict(resumed.state_dict())
if use_cuda:
    checkpoint.seek(0)
    onto = torch.load(checkpoint, map_location=lambda storage, location: storage.cuda(n - 1))
    assert {x.device for x in onto["model"].values()} == {last}
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(last):
        start.record()
        resumed(images.cuda())
        end.record()
        torch.cuda.synchronize()
    assert start.query() and end.query() and start.elapsed_time(end) >= 0
