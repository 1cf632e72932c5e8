"""Training steps of a perceptron whose activations take most of its memory, and ways of having that memory.

Its random numbers are drawn on the CPU, so that every way starts with the same.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import card

import torch
from torch import nn

WARM_UP = 16  # steps, after which a plan is followed; of short rounds several are planned at a time


def use_unified(budget: int) -> None:
    """Makes unified memory PyTorch's, and takes all of the card but the budget. Before CUDA's first use."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    library = card.ROOT / "build/gpu/libunified.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("unified.cc")
    # CUDA's runtime is in the process already: PyTorch has loaded it.
    command = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{home}/include", str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "unified_alloc", "unified_free")
    torch.cuda.memory.change_current_allocator(allocator)
    torch.cuda.init()
    functions = ctypes.CDLL(str(library))
    functions.unified_fill.argtypes = [ctypes.c_size_t]
    if (error := functions.unified_fill(budget)) != 0:
        raise RuntimeError(f"the card was not filled: CUDA error {error}")


def shard_to_host(model: nn.Sequential) -> None:
    """Has FSDP2 keep parameters and the optimizer on the host: its CPU offload, of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    import torch.distributed as dist

    backend = "nccl" if card.REAL else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh(card.PLAIN, (1,))
    policy = CPUOffloadPolicy(pin_memory=card.REAL)
    for part in [*(part for part in model if isinstance(part, nn.Linear)), model]:
        fully_shard(part, mesh=mesh, offload_policy=policy)


def measure(how: str, batch: int, steps: int, budget: int, width: int, layers: int) -> dict[str, Any]:
    """What a way of having the memory takes.

    Args:
        how: plain; managed, with the budget, planned; managed-unplanned and managed-recompute, likewise;
            managed-whole, with room for all; unified; save_on_cpu, of PyTorch; or fsdp, whose CPU offload has
            the optimizer's step on the host.
        batch: samples a step.
        steps: that are measured, behind those in which plans are made.
        budget: bytes on the card, for the ways that keep to one.
        width: of a layer.
        layers: of the perceptron.

    """
    device = "managed" if how.startswith("managed") else card.PLAIN
    if how == "unified":
        use_unified(budget)
    elif device == "managed":
        import innkeeper

        innkeeper.configure(
            nodes=card.nodes(
                2 << 30 if how == "managed-whole" else budget, host="16GiB" if card.REAL else "2GiB"
            ),
            planning=how != "managed-unplanned",
            recompute=how == "managed-recompute",
        )
    torch.utils.deterministic.fill_uninitialized_memory = False  # a kernel more for every tensor
    if not card.REAL:
        torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.GELU())))
    model.to(device)
    if how == "fsdp":
        shard_to_host(model)
    saved = torch.autograd.graph.save_on_cpu(pin_memory=card.REAL) if how == "save_on_cpu" else nullcontext()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
    inputs = torch.randn(batch, width).to(device)
    losses = []

    def step() -> None:
        with saved:
            loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    for _ in range(WARM_UP):
        step()
    gc.collect()
    if card.REAL and how != "unified":
        torch.cuda.reset_peak_memory_stats()
    seconds = card.seconds_of(step, steps)
    result: dict[str, Any] = {
        "samples_a_second": batch / seconds,
        "losses": [loss.item() for loss in losses],
        "peak": 0,
        "stats": {},
    }
    if card.REAL and how != "unified":
        result["peak"] = torch.cuda.max_memory_allocated()
    if device == "managed":
        result["stats"] = innkeeper.stats()
        if not card.REAL:
            result["peak"] = result["stats"]["nodes"][card.NODE]["peak"]
    return result
