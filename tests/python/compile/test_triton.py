"""Triton's kernels, launched by hand on managed tensors: a launcher of the test's own stands for Triton's.

It has the names by which ours finds Triton's, and like it goes to the operands' addresses.
"""

from __future__ import annotations

from pathlib import Path

from processes import RunProgram

LAUNCHER = '''
"""Stands for triton.runtime.jit: a kernel is given each tensor's address."""
import torch

class KernelInterface:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(grid=grid, warmup=False, *args, **kwargs)

class TensorDescriptor:
    def __init__(self, base):
        self.base = base

class JITFunction(KernelInterface):
    def __init__(self, fn):
        self.fn = fn

    def run(self, *args, grid, warmup, **kwargs):
        def address(x):
            x = x.base if isinstance(x, TensorDescriptor) else x
            return (x.data_ptr(), x.numel()) if isinstance(x, torch.Tensor) else x
        for program in range(grid[0]):
            self.fn(program, *map(address, args), **{k: address(x) for k, x in kwargs.items()})
'''
PROGRAM = """
import ctypes, sys
sys.path.insert(0, {directory!r})
{imports}
from triton.runtime.jit import JITFunction, TensorDescriptor

def floats(pointer):
    address, count = pointer
    return (ctypes.c_float * count).from_address(address)

@JITFunction
def add(program, x, y, out, BLOCK):
    x, y, out = floats(x), floats(y), floats(out)
    for i in range(program * BLOCK, min((program + 1) * BLOCK, len(out))):
        out[i] = x[i] + y[i]

def tensors(device):
    whole = torch.arange(200.0, device=device)
    return whole[:100], whole[100:], torch.zeros(100, device=device)

x, y, out = tensors(DEVICE)
innkeeper.evict(x)
add[(4,)](x, y, out=out, BLOCK=32)
print(out.tolist() == (x + y).tolist(), innkeeper.stats()["nodes"]["host"]["pinned"])
add[(4,)](x, y, x, BLOCK=32)  # two operands of one block, one of them written
print(x.tolist() == out.tolist())
add[(4,)](TensorDescriptor(y), y=TensorDescriptor(y), out=TensorDescriptor(out), BLOCK=32)
print(out.tolist() == (y * 2).tolist())
plain = tensors("cpu")
add[(4,)](*plain, BLOCK=32)
print(plain[2].tolist() == (plain[0] + plain[1]).tolist())

library = torch.library.Library("launched", "DEF")
library.define("added(Tensor x, Tensor y) -> Tensor")

def added(x, y):
    out = torch.empty_like(x)
    add[(4,)](x, y, out, BLOCK=32)
    return out

library.impl("added", added, "CompositeImplicitAutograd")  # as triton_op does
print(torch.ops.launched.added(y, y).tolist() == (y * 2).tolist())
"""


def said(run_python: RunProgram, tmp_path: Path, imports: str, device: str, *run: str) -> list[str]:
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (runtime / "jit.py").write_text(LAUNCHER)
    script = tmp_path / "script.py"
    program = PROGRAM.replace("{directory!r}", repr(str(tmp_path))).replace("{imports}", imports)
    script.write_text(program.replace("DEVICE", repr(device)))
    done = run_python(*run, str(script), nodes="host:1GiB")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_launch_receives_the_real_tensors(run_python: RunProgram, tmp_path: Path):
    lines = said(run_python, tmp_path, "import torch, triton.runtime.jit, innkeeper", "managed")
    assert lines == ["True 0", "True", "True", "True", "True"]


def test_one_of_a_script_made_for_cuda_too(run_python: RunProgram, tmp_path: Path):
    lines = said(run_python, tmp_path, "import torch, innkeeper", "cuda", "-m", "innkeeper")
    assert lines == ["True 0", "True", "True", "True", "True"]
