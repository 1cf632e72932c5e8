"""A failure at any point of a training step loses nothing (fault_sweep.py does the work)."""

from __future__ import annotations

import json

import pytest
from processes import RunProgram


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("workload", ["tiny", "optimizer", "gpt", "resnet"])
def test_a_step_survives_a_fault_anywhere(run_python: RunProgram, workload: str, nodes: int):
    done = run_python("tests/support/python/fault_sweep.py", workload, str(nodes), timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["evictions"] > 0
    for kind, row in report["faults"].items():
        assert row["tried"] == row["calls"] > 2, (kind, row)
        assert row["failed"] > 0, (kind, row)  # Otherwise the injection does nothing.
    # A kernel that throws fails the step; only memory and copies can be had from elsewhere.
    assert report["faults"]["kernel"]["passed"] == 0
