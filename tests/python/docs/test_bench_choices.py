"""What benchmarks say of a choice that names nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"
pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    "script", ["host_pace.py", "least_time.py", "replay.py", "unknown_times.py", "variation.py", "gpu_table"]
)
@pytest.mark.parametrize(
    ("only", "said"), [("nothing", "no such"), ("(", "missing ), unterminated subpattern at position 0")]
)
def test_only_names_nothing(script: str, only: str, said: str) -> None:
    words = ["--trial"] if script == "gpu_table" else []
    done = subprocess.run(
        [sys.executable, BENCH / script, "--only", only, *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
