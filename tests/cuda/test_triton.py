"""Triton's kernels that a program launches by hand get the memory of managed tensors.

No GPU computes them here. They are compiled for one, and their launches are held to CUDA's rules; Triton
asks the driver itself whether each address is a GPU's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from launches import LAUNCH, run

pytest.importorskip("triton", reason="there are no such kernels without it")

SCRIPT = """
import innkeeper, torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < count) + tl.load(y + at, at < count), at < count)

@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    out.store([at], x.load([at]) * 2)

x, y, out = (torch.ones(1024, device="managed") for _ in range(3))
innkeeper.evict(x)
add[(8,)](x, y, out, 1000, BLOCK=128)
print(innkeeper.where(x), innkeeper.where(out), innkeeper.stats()["nodes"]["cuda:0"]["pinned"])
a, b = (TensorDescriptor(each, [1024], [1], [128]) for each in (x, out))
double[(8,)](a, b, BLOCK=128)
with innkeeper.resident(y, "cuda:1", write=True), innkeeper.resident(x, "cuda:1", write=True):
    pass
innkeeper.evict(out)
add[(8,)](x, y, out, 1000, BLOCK=128)
print(innkeeper.where(out))
"""


def test_they_are_launched_where_the_operands_are(tmp_path: Path):
    script = tmp_path / "script.py"  # Triton reads its kernels' source.
    script.write_text(SCRIPT)
    nodes = "cuda:0:64MiB,cuda:1:64MiB,host:1GiB"
    done = run(f"import runpy; runpy.run_path({str(script)!r})", nodes, tmp_path, FAKE_CUDA_GPUS="2")
    assert LAUNCH.findall(done.stderr) == [("add", "0"), ("double", "0"), ("add", "1")]
    assert done.stdout.splitlines() == ["['cuda:0'] ['cuda:0'] 0", "['cuda:1']"]
