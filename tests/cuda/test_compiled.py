"""``torch.compile`` where GPUs compute: Triton's kernels, as operators (innkeeper.inductor.launch).

No GPU runs them here. Triton's interpreter does (``INTERPRETED``), or they are compiled as for a GPU and
their launches held to CUDA's rules and counted, without a result.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from launches import INTERPRETED, LAUNCH, run

pytest.importorskip("triton", reason="kernels are Triton's")

MODEL = """
import sys
import innkeeper, torch
from torch import nn
import torch.nn.functional as F

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
    def forward(self, x):
        return x + self.down(F.relu(self.up(x * 2 + 1))) * 0.25

def model():
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(64) for _ in range(6)))

def losses(model, x, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = []
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found

x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1))
"""


# The function's result is exact in any order and by any kernel. (A sine differs where Inductor compiles it.)
SHARED = """
import innkeeper, torch

def f(x, w):
    return torch.relu(x @ w).mul(0.5).sum(-1)

y = torch.compile(f)(torch.ones(8, 8, device=DEVICE), torch.ones(8, 8, device=DEVICE))
ops = {name: each["ops"] for name, each in innkeeper.stats()["nodes"].items()}
print(y.device.type, sum(ops.values()), ops["host"], y.sum().item())
"""


def test_a_cache_is_shared_with_machines_that_have_no_gpu_and_with_plain_cuda(tmp_path: Path):
    managed, cuda = SHARED.replace("DEVICE", "'managed'"), SHARED.replace("DEVICE", "'cuda:0'")
    _, total, on_host, result = run(managed, "host:1GiB", tmp_path).stdout.split()
    assert total == on_host
    assert any(tmp_path.iterdir()), "there is nothing to take"
    gpu = "cuda:0:64MiB,host:1GiB"
    for _ in range(2):  # Compiles, then takes the graph from the cache.
        assert run(cuda, gpu, tmp_path, **INTERPRETED).stdout.split() == ["cuda", "0", "0", result]
        found = run(managed, gpu, tmp_path, **INTERPRETED).stdout.split()
        assert (found[0], found[2:]) == ("managed", ["0", result])


def test_training_at_a_budget_below_its_peak_computes_what_it_computes_with_space(tmp_path: Path):
    script = (
        MODEL
        + """
ours = model().to("managed")
found = losses(torch.compile(ours, fullgraph=True), x.to("managed"))
expected = losses(model(), x)
print(max(abs(a - b) for a, b in zip(found, expected)), innkeeper.stats()["evictions"])
"""
    )
    difference, evictions = run(script, "cuda:0:600KiB,host:1GiB", tmp_path, **INTERPRETED).stdout.split()
    assert float(difference) < 1e-5
    assert int(evictions) > 0, "the model fits: nothing was shown"


def test_what_a_kernel_writes_makes_other_copies_stale_and_what_it_reads_does_not(tmp_path: Path):
    script = """
import innkeeper, torch
x, w = (torch.ones(1000, device="managed") for _ in range(2))
for each in (x, w):
    with innkeeper.resident(each, "host"):
        pass
version = w._version
torch.compile(lambda x, w: x.add_(w * 2), fullgraph=True)(x, w)
print(innkeeper.where(x), sorted(innkeeper.where(w)), w._version - version, x.sum().item())
"""
    said = run(script, "cuda:0:64MiB,host:1GiB", tmp_path, **INTERPRETED).stdout.strip()
    assert said == "['cuda:0'] ['cuda:0', 'host'] 0 3000.0"


@pytest.mark.parametrize("nodes", ["cuda:0:64MiB,host:1GiB", "host:1GiB"])
def test_a_graph_with_tensors_of_plain_cuda_runs_uncompiled(tmp_path: Path, nodes: str):
    script = """
import logging
import innkeeper, torch
logging.getLogger("innkeeper").setLevel("INFO")
logging.basicConfig()
x, y = torch.ones(8, device="managed"), torch.ones(8, device="cuda:0")
a, b = torch.compile(lambda x, y: (x * 2 + 1, y * 3 - 1), fullgraph=True)(x, y)
print(a.device, b.device, a.sum().item(), b.sum().item())
"""
    done = run(script, nodes, tmp_path, **INTERPRETED)
    assert done.stdout.strip() == "managed:0 cuda:0 24.0 16.0"
    assert "runs without Inductor: it has tensors on cuda beside managed ones" in done.stderr


def test_a_kernel_of_the_programs_own_in_a_graph(tmp_path: Path):
    script = tmp_path / "doubling.py"
    script.write_text("""
import innkeeper, torch, triton
import triton.language as tl

@triton.jit
def double(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < count) * 2, at < count)

@torch.compile(fullgraph=True)
def f(x):
    out = torch.empty(36, device=x.device)
    double[(1,)](x[64:], out, 36, BLOCK=64)
    return out.mul(3)

x = torch.ones(100, device="managed")
with innkeeper.resident(x, "host"):
    pass
f(x)
assert sorted(innkeeper.where(x)) == ["cuda:0", "host"], "it is only read"
print([node["ops"] for node in innkeeper.stats()["nodes"].values()][-1])
""")
    done = run(f"import runpy; runpy.run_path({str(script)!r})", "cuda:0:64MiB,host:1GiB", tmp_path)
    assert {name for name, _ in LAUNCH.findall(done.stderr)} >= {"double"}
    assert done.stdout.strip() == "0"


def test_kernels_are_compiled_for_a_gpu_and_launched_where_the_operands_are(tmp_path: Path):
    script = (
        MODEL
        + """
first = torch.compile(model().to("managed"), fullgraph=True)
losses(first, x.to("managed"), 1)
print("--", file=sys.stderr, flush=True)
with innkeeper.on("cuda:1"):
    second = model().to("managed")
    losses(torch.compile(second, fullgraph=True), x.to("managed"), 1)
"""
    )
    nodes = "cuda:0:64MiB,cuda:1:64MiB,host:1GiB"
    before, after = run(script, nodes, tmp_path, FAKE_CUDA_GPUS="2").stderr.split("\n--\n")
    assert {gpu for _, gpu in LAUNCH.findall(before)} == {"0"}
    assert {gpu for _, gpu in LAUNCH.findall(after)} == {"1"}
    assert {name for name, _ in LAUNCH.findall(before)} == {name for name, _ in LAUNCH.findall(after)}
    assert any(tmp_path.rglob("*.cubin")), "nothing was compiled"


def test_kernels_are_not_timed_where_there_is_no_space_for_that(tmp_path: Path):
    script = MODEL + "losses(torch.compile(model().to('managed'), fullgraph=True), x.to('managed'))"
    launches = [
        len(LAUNCH.findall(run(script, f"cuda:0:{budget},host:1GiB", tmp_path / budget).stderr))
        for budget in ("64MiB", "1MiB")
    ]
    assert launches[0] > 10 * launches[1] > 0, "timed, and not"


def test_a_parameter_that_begins_anywhere_is_not_read_16_bytes_at_once(tmp_path: Path):
    script = """
import innkeeper, torch
from torch._inductor.runtime import triton_heuristics

run = triton_heuristics.CachingAutotuner.run
def told(self, *arguments, **options):
    aligned = {at for (at,) in self.triton_meta["configs"][0]}
    for i, x in enumerate(arguments):
        if isinstance(x, torch.Tensor):
            print(i in aligned, x.data_ptr() % 16 == 0)
    return run(self, *arguments, **options)
triton_heuristics.CachingAutotuner.run = told

class Shifted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.ones(4097, device="managed")[1:])
    def forward(self, x):
        return x * 2 + self.p

with torch.no_grad():
    torch.compile(Shifted())(torch.ones(4096, device="managed"))
"""
    said = run(script, "cuda:0:64MiB,host:1GiB", tmp_path).stdout.split("\n")[:3]
    assert sorted(said) == ["False False", "True True", "True True"]


def test_graphs_in_the_graph_and_kernels_with_a_workspace(tmp_path: Path):
    script = """
import innkeeper, torch

@torch.compiler.nested_compile_region
def double(x):
    return x * 2

x = torch.ones(64, 64, device="managed")
print(torch.compile(lambda x: double(double(x)))(x).sum().item() == 4 * 4096)
options = {"triton.force_cooperative_reductions": True, "triton.multi_kernel": 1, "profile_bandwidth": True}
compiled = torch.compile(lambda x, y: (x @ y).sum(-1) + (x * 2).sum(), options=options)
"""
    assert run(script, "cuda:0:64MiB,host:1GiB", tmp_path, **INTERPRETED).stdout.split() == ["True"]
    done = run(script + "compiled(x, x)", "cuda:0:64MiB,host:1GiB", tmp_path / "launched")
    assert LAUNCH.findall(done.stderr)


def test_what_was_compiled_for_gpus_says_so_where_there_are_none(tmp_path: Path):
    script = """
import gc
import innkeeper, torch
f = torch.compile(lambda x: x * 2 + 1)
f(torch.ones(64, device="managed"))
gc.collect()  # the interpreter has a tensor still
innkeeper.configure("host:1GiB")
try:
    f(torch.ones(64, device="managed"))
except RuntimeError as error:
    print(error)
torch.compiler.reset()
print(f(torch.ones(64, device="managed")).sum().item())
"""
    said = run(script, "cuda:0:64MiB,host:1GiB", tmp_path, **INTERPRETED).stdout.splitlines()
    assert "torch.compiler.reset() has it compiled again" in said[0] and said[1:] == ["192.0"]


def test_attention_by_a_rule_of_the_programs_own_with_gradients(tmp_path: Path):
    script = """
import innkeeper, torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

LENGTH = 128  # a block's

def gradients(attend, device):
    torch.manual_seed(0)
    operands = [torch.randn(1, 1, LENGTH, 16).to(device).requires_grad_() for _ in range(3)]
    attended = attend(*operands)
    attended.square().sum().backward()
    return [attended.detach().cpu(), *(x.grad.cpu() for x in operands)]

def plainly(q, k, v):
    at = torch.arange(LENGTH)
    return (q @ k.mT / 4).masked_fill(at[:, None] < at, float("-inf")).softmax(-1) @ v

mask = create_block_mask(lambda batch, head, i, j: i >= j, None, None, LENGTH, LENGTH, device="managed")
compiled = torch.compile(flex_attention, fullgraph=True)
found = gradients(lambda q, k, v: compiled(q, k, v, block_mask=mask), "managed")
print(max((x - y).abs().max().item() for x, y in zip(found, gradients(plainly, "cpu"))))
print(innkeeper.stats()["nodes"]["host"]["ops"])
"""
    difference, at_host = run(script, "cuda:0:64MiB,host:1GiB", tmp_path, **INTERPRETED).stdout.split()
    assert float(difference) < 1e-5
    assert at_host == "0"
