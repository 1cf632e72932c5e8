"""A failure of any call to CUDA in a training step loses nothing (cuda_sweep.py does the work)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def sweep(*arguments: str) -> Any:
    script = Path(__file__).parent / "cuda_sweep.py"
    done = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("gpus", ["1", "2"])
@pytest.mark.parametrize("workload", ["tiny", "optimizer"])
def test_a_step_survives_any_call_that_fails_once(workload: str, gpus: str) -> None:
    report = sweep(workload, gpus)
    assert report["evictions"] > 0
    tried = sum(row.get("passed", 0) + row.get("failed", 0) for row in report["outcome"].values())
    assert tried == report["calls"] > 100
    for call in ("cudaMemcpyAsync", "cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent"):
        assert report["outcome"][call]["failed"] > 0, call


@pytest.mark.parametrize("gpus", ["1", "2"])
def test_a_gpu_that_goes_for_good_at_any_call_takes_nothing_else_with_it(gpus: str) -> None:
    assert sweep("lost", gpus, "3")["tried"] > 50
