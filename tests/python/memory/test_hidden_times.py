"""INNKEEPER_SIM=times=hidden: plans price kernels without measured times, as on a real GPU."""

from __future__ import annotations

import json
import re

import pytest
from processes import RunProgram

TRAIN = """
import json, sys
import innkeeper
import torch
from torch import nn

BUILD = {
    "linear": lambda: (nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]), (64, 256)),
    "conv": lambda: (nn.Sequential(*[nn.Conv2d(16, 16, 3, padding=1) for _ in range(8)]), (16, 16, 24, 24)),
    "attention": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True), 4), (8, 32, 64)),
    "LSTM": lambda: (nn.LSTM(128, 128, 3), (24, 8, 128)),
}
innkeeper.configure(f"sim:1x{sys.argv[2]},host:1GiB")
torch.manual_seed(0)
model, shape = BUILD[sys.argv[1]]()
model = model.to("managed")
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
x = torch.randn(shape, device="managed")
for _ in range(12):
    optimizer.zero_grad()
    out = model(x)
    (out if torch.is_tensor(out) else out[0]).square().mean().backward()
    optimizer.step()
stats = innkeeper.stats()
found = {
    "kernels": stats["period"]["kernel_seconds"],
    "seconds": stats["period"]["seconds"],
    "bound": stats["time_bound"],
    "planned": stats["planned_periods"],
    "sum": sum(p.sum().item() for p in model.parameters()),
}
print(json.dumps(found))
"""
BUDGETS = {"linear": "5MiB", "conv": "6MiB", "attention": "4MiB", "LSTM": "5MiB"}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
def test_kernels_are_priced_by_their_work(run_python: RunProgram, name: str) -> None:
    """Prices use the simulator's formulas: its times, except for operators of several kernels."""
    told, hidden = (
        json.loads(run_python("-c", TRAIN, name, BUDGETS[name], INNKEEPER_SIM=f"times={times}").stdout)
        for times in ("told", "hidden")
    )
    assert hidden["planned"] > 0 and hidden["bound"] > 0
    assert hidden["seconds"] > 0.999 * hidden["kernels"] > 0
    assert hidden["kernels"] == pytest.approx(told["kernels"], rel=0.1)
    assert hidden["sum"] == told["sum"]


@pytest.mark.slow
def test_a_machine_may_differ_from_the_model(run_python: RunProgram) -> None:
    """Kernels take half to twice their price, and no bit depends on it."""
    runs = {
        sim: json.loads(run_python("-c", TRAIN, "linear", BUDGETS["linear"], INNKEEPER_SIM=sim).stdout)
        for sim in (
            "times=told",
            "times=told,truth=random:1",
            "times=told,truth=random:2",
            "times=hidden,truth=random:2",
        )
    }
    model, first, second, hidden = runs.values()
    assert len({run["sum"] for run in runs.values()}) == 1
    assert len({model["kernels"], first["kernels"], second["kernels"]}) == 3
    for truth in (first, second):
        assert 0.5 < truth["kernels"] / model["kernels"] < 2 / 0.6
    assert hidden["planned"] > 0
    assert hidden["kernels"] == pytest.approx(model["kernels"], rel=0.002), "prices know no factors"


# A slow GPU, so that little memory suffices to measure it.
SLOW = "times=hidden,gpu=custom:1:1:1GiB,link=custom:1"


def measured(run_python: RunProgram, budget: str, **env: str) -> tuple[list[str], dict[str, float]]:
    """Lines of the probe, and the results of the program."""
    done = run_python("-c", TRAIN, "linear", budget, INNKEEPER_LOG="info", **env)
    said = [line for line in done.stderr.splitlines() if "measured of" in line]
    return said, json.loads(done.stdout)


@pytest.mark.slow
def test_a_gpu_is_measured_once_and_no_bit_depends_on_it(run_python: RunProgram) -> None:
    said, on = measured(run_python, "5MiB", INNKEEPER_SIM=SLOW)
    assert len(said) == 1
    rates = re.findall(r"(\d+) GB/s", said[0])
    assert rates == ["0", "0", "0"], "one GB/s, less what launches and latencies take"
    none, off = measured(run_python, "5MiB", INNKEEPER_SIM=SLOW, INNKEEPER_PROBE="off")
    assert none == [] and on["sum"] == off["sum"]
    assert on["kernels"] == pytest.approx(off["kernels"], rel=0.1), "the model is right"


@pytest.mark.slow
def test_prices_have_the_measured_rates(run_python: RunProgram) -> None:
    """With truth, memory is slower than its name promises; prices include it once it is measured."""
    sim = f"{SLOW},truth=random:1"
    said, on = measured(run_python, "5MiB", INNKEEPER_SIM=sim)
    _, off = measured(run_python, "5MiB", INNKEEPER_SIM=sim, INNKEEPER_PROBE="off")
    assert len(said) == 1
    assert 1.3 < on["kernels"] / off["kernels"] < 1.7, "0.63 of the rate"
    assert on["sum"] == off["sum"]


def test_a_program_that_fits_measures_nothing(run_python: RunProgram) -> None:
    program = "import innkeeper, torch; x = torch.ones(1000, 1000, device='managed'); x @ x"
    done = run_python("-c", program, nodes="sim:1x64MiB", INNKEEPER_SIM=SLOW, INNKEEPER_LOG="info")
    assert done.returncode == 0 and "measured of" not in done.stderr


def test_a_wrong_setting_is_refused(run_python: RunProgram) -> None:
    program = "import innkeeper, torch; torch.ones(1, device='managed')"
    done = run_python("-c", program, INNKEEPER_PROBE="often")
    assert done.returncode != 0
    assert 'INNKEEPER_PROBE: "often": expected on or off' in done.stderr
