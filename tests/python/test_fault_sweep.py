"""A failure at any point of a training step loses nothing (fault_sweep.py does the work).

INNKEEPER_SWEEP=all tries every point of the larger steps too.
"""

from __future__ import annotations

import json
import os

import pytest
from conftest import run_python

# Workload: how many points are passed over, between two that are tried, in the suite.
STRIDES = {"tiny": 1, "optimizer": 9, "gpt": 17, "resnet": 41}


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("workload", list(STRIDES))
def test_a_step_survives_a_fault_anywhere(workload: str, nodes: int):
    stride = 1 if os.environ.get("INNKEEPER_SWEEP") == "all" else STRIDES[workload]
    done = run_python("tests/python/fault_sweep.py", workload, str(nodes), str(stride), timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["evictions"] > 0
    for kind, row in report["faults"].items():
        assert row["tried"] == len(range(1, row["calls"] + 1, stride)) and row["tried"] > 2, (kind, row)
        assert row["failed"] > 0, (kind, row)  # or the injection does nothing
    # A kernel that throws fails the step; only memory and copies can be had from elsewhere.
    assert report["faults"]["kernel"]["passed"] == 0
