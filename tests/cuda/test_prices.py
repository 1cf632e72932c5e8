"""Plans price the kernels of a GPU, which have no measured times, by their work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import innkeeper

import torch
from torch import nn


def test_periods_have_seconds_and_a_bound() -> None:
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)]).to("managed")
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 1024, device="managed")
    for _ in range(10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    stats = innkeeper.stats()
    assert stats["planned_periods"] > 0
    period = stats["period"]
    # Six products of each layer, at the rates that follow from the driver's report of eight multiprocessors.
    # The time is at least a whole H100's, and at most a second.
    flops = 8 * 3 * 2 * 64 * 1024 * 1024
    assert flops / 989e12 < period["kernel_seconds"] < 1
    assert period["seconds"] > 0 and stats["time_bound"] >= period["kernel_seconds"]


EVICTING = """
import innkeeper
import torch

innkeeper.configure("cuda:0:1600MiB,host:4GiB")
kept = [torch.ones(16 << 20, device="managed") for _ in range(26)]
small = torch.ones(1, device="managed")
for tensor in kept:
    tensor.add_(1)
del kept[6:14]  # so that there is room at once
for _ in range(300):  # the fake's matrix products take too long to be measured
    small.add_(1)
print(sum(tensor[0].item() for tensor in kept))
"""


def test_what_was_measured_is_kept_for_later_programs(tmp_path: Path) -> None:
    settings = {"FAKE_CUDA_MEMORY": str(2 << 30), "INNKEEPER_LOG": "info", "XDG_CACHE_HOME": str(tmp_path)}

    def measured(**more: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", EVICTING],
            env=os.environ | settings | more,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0 and done.stdout == "36.0\n", done.stderr[-2000:]
        return sum("measured of cuda:0" in line for line in done.stderr.splitlines())

    directory = tmp_path / "innkeeper" / "gpus"
    assert measured(INNKEEPER_PROBE="off") == 0 and not directory.exists()
    assert measured() == 1
    (file,) = directory.iterdir()
    rates = dict(line.split(": ", 1) for line in file.read_text().splitlines())
    assert file.name == rates["uuid"] + ".rates" and rates["uuid"].startswith("GPU-")
    assert float(rates["bytes"]) > 0 and rates["shared"] == "no"
    assert measured() == 1, "matrix products are lacking"
    file.write_text(file.read_text().replace("flops: 0", "flops: 1e14"))
    assert measured() == 0, "the next program reads what this one has measured"
    file.write_text(file.read_text().replace("shared: no", "shared: yes"))
    assert measured() == 1, "and measures again what was shared"


def test_calibrate_has_the_gpus_measured(tmp_path: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if name != "INNKEEPER_NODES"}
    done = subprocess.run(
        [sys.executable, "-m", "innkeeper.measure_gpus"],
        env=settings | {"XDG_CACHE_HOME": str(tmp_path), "FAKE_CUDA_MEMORY": str(4 << 30)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    count = torch.cuda.device_count()
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [f"cuda:{i}" for i in range(count)]
    assert len(list((tmp_path / "innkeeper" / "gpus").iterdir())) == count
