"""torch.distributed with managed tensors, under torchrun: bitwise equal to Gloo with CPU tensors."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from processes import RunProgram
from torchrun import Torchrun, found, launcher


@pytest.mark.parametrize("backend", ["none", "gloo", "cpu:gloo,managed:innkeeper"])
def test_collectives_give_what_gloo_gives(torchrun: Torchrun, backend: str):
    expected = torchrun.found("collectives", device="cpu", backend="gloo")
    assert torchrun.found("collectives", backend=backend) == expected


def test_collectives_of_four(torchrun: Torchrun):
    expected = torchrun.found("collectives", 4, device="cpu", backend="gloo")
    assert torchrun.found("collectives", 4) == expected


@pytest.mark.parametrize("case", ["train", "views", "static"])
def test_data_parallel_training_has_the_bits_of_the_cpus(torchrun: Torchrun, case: str):
    expected = torchrun.found(case, device="cpu", backend="gloo")
    assert expected[0][1:] == expected[1][1:], "all have the same weights"
    assert torchrun.found(case) == expected
    tight = torchrun.case(case, nodes="sim:1x1400KiB,host:256MiB")
    assert found(tight) == expected
    assert min(row["evictions"] for row in tight) > 0


def test_a_batch_norm_of_all_processes_is_that_of_the_whole_batch(torchrun: Torchrun):
    assert torchrun.found("sync_batch_norm", 2) == [True, True]


def test_gathers_into_a_tensor_of_any_shape(torchrun: Torchrun):
    whole = [[1.0] * 3 + [2.0] * 3]
    assert torchrun.found("all_gather_of_other_shapes") == [[whole, [[2.0] * 3]], [whole, [[4.0] * 3]]]


def test_gradients_are_summed_beside_the_backward(torchrun: Torchrun):
    assert torchrun.found("overlap") == [True, True]


def test_the_local_rank_is_the_preferred_node(torchrun: Torchrun):
    assert torchrun.found("home", 3) == [
        [["sim:0"], 0, [True] * 3],
        [["sim:1"], 0, [True] * 3],
        [["sim:0"], 0, [True] * 3],
    ]


def test_parameters_that_a_process_does_not_use(torchrun: Torchrun):
    assert torchrun.found("unused") == torchrun.found("unused", device="cpu", backend="gloo")


@pytest.mark.parametrize("device", ["cuda:0", "managed:0"])
def test_a_group_may_be_bound_to_a_device(run_python: RunProgram, tmp_path: Path, device: str):
    """PyTorch alone refuses a device that is not the accelerator's, which managed is now."""
    code = """
import sys
import innkeeper
import torch
import torch.distributed as dist
store = dist.FileStore(sys.argv[1], 1)
dist.init_process_group(store=store, rank=0, world_size=1, device_id=torch.device(sys.argv[2]))
ones = torch.ones(8, device="managed")
dist.all_reduce(ones)
dist.destroy_process_group()
print(ones.sum().item())
"""
    done = run_python("-c", code, str(tmp_path / "store"), device)
    assert done.stdout.split() == ["8.0"], done.stdout + done.stderr


def test_sparse_tensors_are_summed(torchrun: Torchrun):
    """They stayed unchanged: the operators' fallback lent a copy for the call, which Gloo outlives."""
    assert torchrun.found("sparse") == torchrun.found("sparse", device="cpu", backend="gloo")


def test_only_threads_that_call_drop_tensors_of_collectives(run_python: RunProgram):
    # A Gloo thread that drops an object of Python's while the interpreter ends would end the process.
    script = """
import threading, weakref, torch, innkeeper, torch.distributed as dist
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
droppers = []
for i in range(600):
    x = torch.ones(10, device="managed")
    weakref.finalize(x, lambda: droppers.append(threading.get_ident()))
    work = dist.all_reduce(x, async_op=True)
    if i % 2: work.wait()
    elif i % 4: work.get_future().then(lambda future: future.value())
    del work, x
dist.destroy_process_group()
print(len(droppers), set(droppers) == {threading.get_ident()})
"""
    done = run_python("-c", script)
    assert done.stdout.split() == ["600", "True"], done.stdout + done.stderr


def test_a_killed_process_ends_all(torchrun: Torchrun, tmp_path: Path):
    script = tmp_path / "die.py"
    script.write_text(
        "import os, signal, torch, innkeeper, torch.distributed as dist\n"
        "dist.init_process_group()\n"
        "x = torch.ones(10, device='managed')\n"
        "dist.all_reduce(x)\n"
        "if dist.get_rank() == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.all_reduce(x)\n"
        "print('went on')\n"
    )
    began = time.monotonic()
    done = torchrun(str(script))
    assert done.returncode != 0 and "went on" not in done.stdout
    assert (
        f"Signal {int(signal.SIGKILL)} (SIGKILL)" in done.stderr or "Connection closed by peer" in done.stderr
    )
    assert time.monotonic() - began < 150


# A tensor's own methods, without and with a generator, on replicas and on shards of two processes.
SHARDED = """
import sys, torch
if sys.argv[1] == "managed":
    import innkeeper
import torch.distributed as dist
import torch.distributed.tensor as tensors

device = sys.argv[1]
dist.init_process_group("gloo")
mesh = dist.init_device_mesh(device, (2,))

def all_parts(x):
    parts = [torch.empty(x.shape) for _ in range(2)]
    dist.all_gather(parts, x.cpu())
    return parts

def report(*found):
    if dist.get_rank() == 0:
        print("found", *found)

for placement in (tensors.Replicate(), tensors.Shard(0)):
    ones = tensors.distribute_tensor(torch.ones(64, 8, device=device), mesh, [placement])
    own = torch.Generator(device).manual_seed(3)
    for draw in (
        lambda: tensors.rand(64, 8, device_mesh=mesh, placements=[placement]),
        lambda: torch.nn.functional.dropout(ones, 0.5),
        lambda: ones.clone().normal_(),
        lambda: ones.clone().uniform_(generator=own),
    ):
        torch.manual_seed(7)
        first, second = (all_parts(draw().to_local()) for _ in range(2))
        torch.manual_seed(7)
        again = all_parts(draw().to_local())
        report(torch.equal(*first), torch.equal(first[0], second[0]), torch.equal(first[0], again[0]))
    report(torch.equal(*all_parts(torch.rand(4, device=device))))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("way", ["managed", "cuda"], ids=["plain", "run --managed"])
def test_replicas_draw_the_same_and_shards_their_own(run_program: RunProgram, tmp_path: Path, way: str):
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    python, *rest = launcher()
    preload = ["-m", "innkeeper"] if way == "cuda" else []
    done = run_program(python, *preload, *rest, str(script), way, OMP_NUM_THREADS="1")
    lines = [line for line in done.stdout.splitlines() if line.startswith("found")]
    # """Whether both processes draw the same, whether the same twice, and whether the same after a seed."""
    seeded, goes_on = "found {} False True", "found {} False False"
    replicas = [*[seeded.format(True)] * 3, goes_on.format(True), "found True"]
    shards = [*[seeded.format(False)] * 3, goes_on.format(False), "found True"]
    assert lines == replicas + shards, done.stderr[-3000:]
