"""A process of a group, for test_distributed.py: runs the case named, prints its results."""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import innkeeper
from models import Gpt
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

import torch
import torch.distributed as dist
from torch import nn

DEVICE = os.environ.get("TEST_DEVICE", "managed")
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device=DEVICE)


def numbers(n: int, start: float = 0.0) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32).to(DEVICE) + start


def collectives() -> Any:
    """Results of each collective, in an order that does not depend on the device."""
    found: dict[str, Any] = {}
    x = numbers(5, RANK)
    dist.all_reduce(x)
    found["all_reduce"] = x.tolist()
    x = numbers(5, RANK)
    dist.all_reduce(x[1:4], op=dist.ReduceOp.MAX)
    found["all_reduce of a view"] = x.tolist()
    x = numbers(3, 10 * RANK)
    dist.broadcast(x, src=SIZE - 1)
    found["broadcast"] = x.tolist()
    x = numbers(3, RANK)
    dist.reduce(x, dst=0)
    found["reduce"] = x.tolist() if RANK == 0 else None
    parts = [torch.zeros(2, device=DEVICE) for _ in range(SIZE)]
    dist.all_gather(parts, numbers(2, RANK))
    found["all_gather"] = [part.tolist() for part in parts]
    whole = torch.zeros(2 * SIZE, device=DEVICE)
    dist.all_gather_into_tensor(whole, numbers(2, RANK))
    found["all_gather_into_tensor"] = whole.tolist()
    views = list(torch.zeros(2 * SIZE, device=DEVICE).chunk(SIZE))
    dist.all_gather(views, numbers(2, RANK))
    found["all_gather into views of one"] = [view.tolist() for view in views]
    part = torch.zeros(2, device=DEVICE)
    dist.reduce_scatter_tensor(part, numbers(2 * SIZE, RANK))
    found["reduce_scatter_tensor"] = part.tolist()
    part = torch.zeros(2, device=DEVICE)
    dist.reduce_scatter(part, [numbers(2, RANK + i) for i in range(SIZE)])
    found["reduce_scatter"] = part.tolist()
    parts = [torch.zeros(2, device=DEVICE) for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(numbers(2, RANK), parts, dst=0)
    found["gather"] = [part.tolist() for part in parts] if parts else None
    part = torch.zeros(2, device=DEVICE)
    dist.scatter(part, [numbers(2, 5 * i) for i in range(SIZE)] if RANK == 0 else None, src=0)
    found["scatter"] = part.tolist()
    whole = torch.zeros(SIZE, device=DEVICE)
    dist.all_to_all_single(whole, numbers(SIZE, 10 * RANK))
    found["all_to_all_single"] = whole.tolist()
    x = torch.zeros(3, device=DEVICE)
    if RANK == 0:
        dist.send(numbers(3, 7), dst=1)
    elif RANK == 1:
        dist.recv(x, src=0)
    found["recv"] = x.tolist()
    x = numbers(3, RANK)
    work = dist.all_reduce(x, async_op=True)
    y = x + 1  # The managed device waits here; on the CPU the program must wait first.
    work.wait()
    assert DEVICE == "cpu" or y.equal(x + 1)
    found["async"] = x.tolist()
    dist.barrier()
    dist.barrier(device_ids=[RANK])  # Libraries pass the device so.
    objects = [{"rank": RANK}]
    dist.broadcast_object_list(objects)
    found["objects"] = objects
    cpu = torch.full((2,), float(RANK))
    dist.all_reduce(cpu)
    found["cpu"] = cpu.tolist()
    group = dist.new_group([0, 1])
    if RANK < 2:
        x = ones(2)
        dist.all_reduce(x, group=group)
        found["subgroup"] = x.tolist()
    x = torch.zeros(0, device=DEVICE)
    dist.all_reduce(x)
    return found


def train(steps: int = 4, **options: Any) -> Any:
    torch.manual_seed(0)
    model = Gpt(dropout=0.0).to(DEVICE)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=1, **options)
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2, foreach=True)
    tokens = torch.randint(96, (SIZE * 4, 24), generator=torch.Generator().manual_seed(1)).chunk(SIZE)[RANK]
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        if step == 1 and options.get("static_graph") is None:
            with wrapped.no_sync():
                wrapped(tokens.to(DEVICE)).logsumexp(-1).mean().backward()
        loss = wrapped(tokens.to(DEVICE)).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().cpu().flatten() for p in model.parameters()])
    return losses, weights.double().sum().item(), weights.view(torch.int32).sum().item()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) if RANK == 0 else self.one(x) + self.other(x)


def unused() -> Any:
    torch.manual_seed(0)
    model = DistributedDataParallel(Branches().to(DEVICE), find_unused_parameters=True)
    for _ in range(3):
        model(ones(2, 4)).sum().backward()
    return [p.grad.tolist() for p in model.parameters()]


def sync_batch_norm() -> Any:
    """Difference between a batch norm of all processes' parts and one of the whole batch, after training."""
    torch.manual_seed(0)
    batch, world = torch.randn(8, 4, 3, 3), dist.get_world_size()
    whole = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    parts = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to(DEVICE)
    parts = DistributedDataParallel(parts)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (whole, parts)]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        whole(batch).square().mean().backward()
        parts(batch.chunk(world)[RANK].to(DEVICE)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
    pairs = zip(whole.state_dict().values(), parts.module.state_dict().values(), strict=True)
    return max((a.float() - b.cpu().float()).abs().max().item() for a, b in pairs) < 1e-5


def all_gather_of_other_shapes() -> Any:
    """NCCL accepts this: the output's shape need not begin with the number of processes."""
    mine = torch.full((1, 3), RANK + 1.0).to(DEVICE)
    all_of_it = torch.zeros(1, 3 * dist.get_world_size()).to(DEVICE)
    dist.all_gather_into_tensor(all_of_it, mine)
    part = torch.zeros(1, 3).to(DEVICE)
    dist.reduce_scatter_tensor(part, all_of_it)
    return [all_of_it.tolist(), part.tolist()]


def sparse() -> Any:
    """Sums of sparse tensors, by hand and by an embedding's gradients."""
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]) * (RANK + 1)
    sums = []
    for asynchronous in (False, True):
        x = torch.sparse_coo_tensor([[RANK, RANK + 1, 5]], rows, (8, 2)).to(DEVICE)
        work = dist.all_reduce(x, async_op=asynchronous)
        if asynchronous:
            work.wait()
        sums.append(x.to_dense().tolist())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4)).to(DEVICE)
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        tokens = torch.randint(50, (6,), generator=torch.Generator().manual_seed(10 * step + RANK))
        wrapped(tokens.to(DEVICE)).square().sum().backward()
        optimizer.step()
    refused = []
    for x in (torch.eye(2).to_sparse().to(DEVICE), torch.eye(2).to_sparse_csr().to(DEVICE)):
        try:
            dist.broadcast(x, src=0)
        except NotImplementedError:
            refused.append(x.layout)
    return sums, [p.tolist() for p in model.parameters()], len(refused)


def overlap() -> Any:
    """The last process sums nothing before the first has all its gradients. A backward that waited for a
    bucket's sum would never end.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to(DEVICE)
    # More buckets than one.
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.02)
    store = dist.distributed_c10d._get_default_store()
    happened: list[str] = []

    def sum_up(_, bucket):  # DDP refuses annotations that are strings.
        happened.append(f"bucket {bucket.index()}")
        return allreduce_hook(None, bucket)

    def first_layers(_: torch.Tensor) -> None:
        happened.append("the first layer's")
        store.set(f"gradients {step} of {RANK}", "")

    def last_layers(_: torch.Tensor) -> None:
        if RANK == SIZE - 1:
            store.wait([f"gradients {step} of 0"], timedelta(seconds=120))

    wrapped.register_comm_hook(None, sum_up)
    model[0].weight.register_hook(first_layers)
    model[-1].weight.register_hook(last_layers)
    for step in range(3):  # noqa: B007  (hooks read it)
        happened.clear()
        wrapped(ones(2, 64)).sum().backward()
    return happened.index("bucket 0") < happened.index("the first layer's")


def home() -> Any:
    """Nodes of new tensors without operands, when a program sets its rank as for CUDA's devices."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.accelerator.set_device_index(rank)
    torch.managed.set_device(rank)  # type: ignore[attr-defined]
    refused = []
    for call in (torch.accelerator.set_device_index, torch.managed.set_device):  # type: ignore[attr-defined]
        try:
            call(rank + 1)
        except (RuntimeError, ValueError) as error:
            refused.append("one managed device" in str(error))
    try:
        torch.managed.set_device(f"cpu:{rank}")  # type: ignore[attr-defined]
    except ValueError as error:
        refused.append("Expected a managed device" in str(error))
    return innkeeper.where(ones(3)), torch.accelerator.current_device_index(), refused


CASES: dict[str, Callable[[], Any]] = {
    "collectives": collectives,
    "train": train,
    "views": lambda: train(gradient_as_bucket_view=True),
    "static": lambda: train(static_graph=True),
    "unused": unused,
    "sync_batch_norm": sync_batch_norm,
    "all_gather_of_other_shapes": all_gather_of_other_shapes,
    "sparse": sparse,
    "overlap": overlap,
    "home": home,
}


def main() -> None:
    case, backend = sys.argv[1], sys.argv[2]
    dist.init_process_group(None if backend == "none" else backend, timeout=timedelta(seconds=60))
    found = CASES[case]()
    if DEVICE == "managed":
        innkeeper.manager().check_invariants()
    evictions = innkeeper.stats()["evictions"]
    dist.destroy_process_group()
    line = json.dumps({"rank": RANK, "found": found, "evictions": evictions}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())  # One write: other processes print to the same pipe.
    # The hook of `overlap` gives Python's objects to Gloo's threads.
    if DEVICE == "cpu" or case == "overlap":
        os._exit(0)  # Skips a bug of Gloo's threads: github.com/pytorch/pytorch/issues/190489.


if __name__ == "__main__":
    main()
