"""The tests for real GPUs are sound: those that need no CUDA pass on a simulated GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import RunProgram

CHOSEN = "room or random or experiments or (overlap and not training) or (bits and gpt-fused) or compiled"


def test_they_pass_on_a_simulated_gpu(
    run_python: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INNKEEPER_GPU_TESTS", "sim")
    monkeypatch.setenv("OUT", str(tmp_path))
    done = run_python("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu", "-k", CHOSEN, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    figures = json.loads((tmp_path / "results-sim.json").read_text())
    assert figures["bits"]["gpt-fused"]["equal_at_percent"] == ["100", "70", "40"]
    rows = run_python("bench/gpu_table", "--tests", str(tmp_path / "results-sim.json"))
    assert "| bits | gpt-fused equal to plain | yes |" in rows.stdout


def test_rows_say_where_they_come_from(run_python: RunProgram, tmp_path: Path) -> None:
    """Figures that can stand in a document: tools/check_figures.py requires it."""
    machine = {"GPU": "H200", "PyTorch": "2.11", "CUDA": "", "commit": "0123abc"}
    (tmp_path / "results.json").write_text(json.dumps({"machine": machine, "room": {"highest": 1.5}}))
    rows = run_python("bench/gpu_table", "--tests", str(tmp_path / "results.json")).stdout
    assert rows.startswith(
        "Measured at 0123abc by `make gpu`, of `src/residency` and `src/torch`: GPU H200, PyTorch 2.11\n"
    )


def test_nothing_measured_is_said_in_one_line(run_python: RunProgram, tmp_path: Path) -> None:
    rows = run_python("bench/gpu_table", "--tests", str(tmp_path / "none.json"))
    assert rows.returncode == 1
    assert "nothing has been measured" in rows.stdout
