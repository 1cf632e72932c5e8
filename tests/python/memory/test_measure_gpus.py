"""``python -m innkeeper.measure_gpus``, which ``innkeeper calibrate`` runs."""

from __future__ import annotations

import pytest
from processes import RunProgram

pytestmark = pytest.mark.process
MEASURE = ("-m", "innkeeper.measure_gpus")


def test_each_gpu_is_measured(run_python: RunProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without data, so that its pace is the simulated GPU's and not the CPU's.
    monkeypatch.setenv("INNKEEPER_SIM", "times=hidden,data=off,gpu=H100")
    done = run_python(*MEASURE, nodes="sim:2x8GiB,host:1GiB")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["sim:0", "sim:1"]
    for line in lines:
        assert "GFLOP/s in bf16" in line and "GB/s of its memory" in line and "GB/s to the host" in line


def test_there_is_no_gpu_to_measure(run_python: RunProgram) -> None:
    done = run_python(*MEASURE, nodes="sim:1x64MiB,host:64MiB")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "no node is a GPU that hides its kernels' times"


def test_there_is_too_little_memory(run_python: RunProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNKEEPER_SIM", "times=hidden,data=off")
    done = run_python(*MEASURE, nodes="sim:1x4MiB,host:64MiB")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "sim:0: nothing was measured, there is too little room or time"
