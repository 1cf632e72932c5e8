"""Weights after 20 steps on a card are bitwise equal at 100, 70 and 40 % of the peak (decision 7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import run_python

STEPS = 20
MODELS = Path(__file__).parents[1] / "python"

SCRIPT = """
import gc, json, sys
import torch
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
sys.path.insert(0, {models!r})
import models
import innkeeper

def run(nodes):
    innkeeper.configure(nodes=nodes)
    innkeeper.manager().reset_stats()
    torch.cuda.reset_peak_memory_stats()
    losses, digest = models.TRAININGS[{name!r}]("managed", {steps})
    gc.collect()
    return {{"losses": losses, "hash": digest, "stats": innkeeper.stats(),
             "broken": innkeeper._C.check_invariants(), "allocated": torch.cuda.max_memory_allocated()}}

models.TRAININGS[{name!r}]("managed", 2)  # libraries take their memory at their first use
gc.collect()
out = {{"whole": run("cuda:0:4GiB,host:4GiB")}}
peak = out["whole"]["stats"]["nodes"]["cuda:0"]["peak"]
for percent in (100, 70, 40):
    out[str(percent)] = run(f"cuda:0:{{peak * percent // 100}}B,host:4GiB")
print(json.dumps(out))
"""


@pytest.mark.parametrize("name", ["gpt-foreach", "gpt-fused", "mlp-autocast", "lstm", "resnet"])
def test_weights_are_bitwise_equal_at_every_budget(name: str) -> None:
    done = run_python(SCRIPT.format(models=str(MODELS), name=name, steps=STEPS))
    assert done.returncode == 0, done.stderr[-4000:]
    runs = json.loads(done.stdout.splitlines()[-1])
    whole = runs.pop("whole")
    assert whole["stats"]["evictions"] == 0
    for percent, run in runs.items():
        assert run["broken"] == "", percent
        assert run["losses"] == whole["losses"], percent
        assert run["hash"] == whole["hash"], percent
        card = run["stats"]["nodes"]["cuda:0"]
        assert card["peak"] <= card["budget"], percent
        assert card["recount"] == card["resident"], percent
        if percent != "100":
            assert run["stats"]["evictions"] > 0, percent
            assert run["stats"]["fetches"] > 0, percent
