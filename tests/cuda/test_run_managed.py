"""Scripts made for CUDA whose nodes are GPUs: torch.cuda follows the runtime, which starts CUDA itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import RunProgram


@pytest.fixture
def run(run_python: RunProgram, tmp_path: Path) -> Callable[..., list[str]]:
    """Lines of a script that ``python -m innkeeper`` runs, with the run's nodes or others."""

    def lines(code: str, nodes: str = os.environ["INNKEEPER_NODES"], **environment: str) -> list[str]:
        script = tmp_path / "script.py"
        script.write_text(code)
        done = run_python("-m", "innkeeper", script, nodes=nodes, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return lines


@pytest.mark.parametrize("nodes", ["cuda:64MiB,host:1GiB", "auto", "cuda:1:64MiB,cuda:0:64MiB", "sim:2x8MiB"])
def test_the_state_of_torch_cuda_follows_the_runtime(run: Callable[..., list[str]], nodes: str):
    code = """
import torch
def state():
    return torch.cuda._initialized, torch.cuda.is_initialized(), len(torch.cuda.default_generators)
ran = []
torch.cuda._lazy_call(lambda: ran.append(state()))
print(torch.cuda.device_count(), torch.cuda.memory_allocated(), *state(), ran)
x = torch.ones(2, device="cuda")
print(torch.cuda.device_count(), *state(), ran, torch.cuda.default_generators[0].device)
print(torch.cuda.get_device_properties(0).total_memory > 0, torch.cuda.get_device_capability() >= (7, 0))
torch.cuda.manual_seed(3)
first = torch.rand(4, device="cuda")
torch.cuda.default_generators[0].manual_seed(3)
print(torch.equal(first, torch.rand(4, device="cuda")), torch.cuda.current_device())
"""
    assert run(code, nodes) == [
        "2 0 False False 0 []",
        "2 True True 2 [(False, False, 2)] cuda:0",
        "True True",
        "True 0",
    ]


@pytest.mark.parametrize("mode", ["late", "early"])
def test_checkpoints_draw_the_same_masks_again(run: Callable[..., list[str]], mode: str):
    code = """
import torch
from torch.utils.checkpoint import checkpoint
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5)).cuda()
for reentrant in (False, True):
    x = torch.ones(8, 64, device="cuda", requires_grad=True)
    y = checkpoint(model, x, use_reentrant=reentrant)
    y.sum().backward()
    mask = (y.detach() != 0).float() * 2
    print(torch.allclose(x.grad, mask @ model[0].weight.detach(), atol=1e-5), 0 < mask.mean().item() < 2)
"""
    assert run(code, FAKE_CUDA_MODE=mode) == ["True True"] * 2
