"""torch.compile with Inductor: a compiled model has plain PyTorch's compiled bits at every budget.

On a GPU the kernels are Triton's (innkeeper.inductor.launch), each timed once to choose its form: so plain
PyTorch compiles first, and its choices are kept in Inductor's cache for the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_device import FAST, NODE, REAL, answer_of, record

STEPS = 20 if FAST else 3
WIDTH, LAYERS = (512, 6) if FAST else (64, 4)

SCRIPT = f"""
import gc, hashlib, json
import torch
import gpu_device
from torch import nn
import torch.nn.functional as F

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x + self.down(F.relu(self.up(x * 2 + 1))) * 0.25

def train(device):
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer({WIDTH}) for _ in range({LAYERS}))).to(device)
    compiled = torch.compile(model, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x = torch.randn(64, {WIDTH}, generator=torch.Generator().manual_seed(1)).to(device)
    losses = []
    for _ in range({STEPS}):
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    whole = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters()))
    torch.compiler.reset()
    return losses, whole.hexdigest()

torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = False
if gpu_device.REAL:
    torch.cuda.init()
else:
    torch.set_num_threads(1)
plain = train(gpu_device.PLAIN)
gc.collect()
import innkeeper

def run(budget):
    innkeeper.configure(nodes=gpu_device.nodes(budget))
    innkeeper.manager().reset_stats()
    losses, digest = train("managed")
    gc.collect()
    return {{"losses": losses, "hash": digest, "stats": innkeeper.stats(),
             "broken": innkeeper._C.check_invariants()}}

runs = {{"whole": run(1 << 30)}}
peak = runs["whole"]["stats"]["nodes"][gpu_device.NODE]["peak"]
runs["60"] = run(peak * 60 // 100)
print(json.dumps({{"plain": plain, **runs}}))
"""


def test_a_compiled_model_has_the_bits_of_plain_pytorch_at_every_budget(tmp_path: Path) -> None:
    if REAL:
        pytest.importorskip("triton", reason="kernels for GPUs are Triton's")
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    if REAL and not FAST:
        settings["TRITON_INTERPRET"] = "1"
    runs = answer_of(SCRIPT, **settings)
    losses, digest = runs.pop("plain")
    for percent, run in runs.items():
        assert run["broken"] == "", percent
        assert run["losses"] == losses, percent
        assert run["hash"] == digest, percent
        operators = {name: node["ops"] for name, node in run["stats"]["nodes"].items()}
        assert operators["host"] * 20 < operators[NODE], percent  # The host reads a few numbers.
    record("compiled", evictions_at_60=runs["60"]["stats"]["evictions"], equal_to_plain=True)
    assert runs["whole"]["stats"]["evictions"] == 0
    assert runs["60"]["stats"]["evictions"] > 0
