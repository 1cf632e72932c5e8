"""Messages of benchmarks about a choice that names nothing."""

from __future__ import annotations

import pytest
from processes import RunProgram
from repository import ROOT


@pytest.mark.parametrize(
    "script",
    [
        "host_pace.py",
        "least_time.py",
        "replay.py",
        "traces/record.py",
        "unknown_times.py",
        "variation.py",
        "gpu_table",
    ],
)
@pytest.mark.parametrize(
    ("only", "said"), [("nothing", "no such"), ("(", "missing ), unterminated subpattern at position 0")]
)
def test_only_names_nothing(run_python: RunProgram, script: str, only: str, said: str) -> None:
    words = ["--trial"] if script == "gpu_table" else []
    done = run_python(ROOT / "bench" / script, "--only", only, *words)
    assert done.returncode != 0
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr
