"""Collectives between GPUs: two processes with a fake GPU each, on a fake NCCL, give the results of Gloo.

The test does not see that sums run concurrently with backward: the fake runs a process's work under one lock.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from torchrun import Torchrun

AMPLE, TIGHT = "cuda:64MiB,host:512MiB", "cuda:1400KiB,host:256MiB"

WHERE = """
import os, sys, torch, innkeeper, torch.distributed as dist
dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else None)
rank = dist.get_rank()
places = []
sum_, most, bits = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BAND
for dtype, op, result in ((torch.float32, sum_, 3), (torch.bfloat16, most, 2), (torch.int32, bits, 0)):
    x = torch.full((1000,), rank + 1, dtype=dtype, device="managed")
    dist.all_reduce(x, op)
    places += innkeeper.where(x)
    assert x.tolist() == [result] * 1000
works = [dist.all_reduce(torch.ones(100, device="managed") * i, async_op=True) for i in range(300)]
assert [work.result()[0].sum().item() for work in works if work.wait()] == [200 * i for i in range(300)]
big = torch.full((1 << 18,), float(rank), device="managed")
dist.broadcast(big, src=1)
innkeeper.evict(big)
assert big.sum().item() == 1 << 18
innkeeper.manager().check_invariants()
dist.destroy_process_group()
os.write(1, f"{rank} {places}\\n".encode())
"""


def told(torchrun: Torchrun, script: Path, *words: str, nodes: str = AMPLE) -> list[str]:
    done = torchrun(str(script), *words, nodes=nodes)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", ["collectives", "train", "views", "static", "unused", "sparse"])
def test_they_give_what_gloo_gives_on_the_cpu(torchrun: Torchrun, case: str) -> None:
    expected = torchrun.found(case, device="cpu", backend="gloo", nodes="host:512MiB")
    assert torchrun.found(case, nodes=AMPLE) == expected
    if case == "train":
        assert torchrun.found(case, nodes=TIGHT) == expected


@pytest.mark.parametrize("said", ["", "gloo"])
def test_bytes_stay_on_the_gpus_unless_gloo_is_requested(
    torchrun: Torchrun, tmp_path: Path, said: str
) -> None:
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    for line in told(torchrun, script, *said.split()):
        rank, places = line.split(" ", 1)
        gpu = "host" if said == "gloo" else f"cuda:{rank}"
        assert places == str([gpu, gpu, "host"]), "NCCL does nothing with bits"


def test_processes_of_one_gpu_go_by_the_host(torchrun: Torchrun, tmp_path: Path) -> None:
    script = tmp_path / "where.py"
    script.write_text(WHERE)
    said = told(torchrun, script, nodes="cuda:0:32MiB,host:512MiB")
    assert sorted(said) == [f"{rank} {['host'] * 3}" for rank in range(2)]
