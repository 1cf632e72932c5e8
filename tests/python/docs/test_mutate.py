"""tools/mutate: a run of hours that was stopped goes on where it was."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import StartProgram
from repository import ROOT


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def test_outcomes_of_the_same_commit_are_kept(tmp_path: Path):
    from mutate import Outcome, keep_outcomes, outcomes_kept
    from mutation import Mutant

    first, second, third = (Mutant(f"a/{n}", "src/a.cc", "x", "y") for n in range(3))
    tried = [Outcome(first, "killed", "Engine.Test", 2.5), Outcome(second, "survived")]
    file = tmp_path / "mutants-core.json"
    keep_outcomes(file, "abc", tried)
    assert outcomes_kept(file, "abc", [first, second, third]) == tried
    assert outcomes_kept(file, "abc", [third, second]) == tried[1:]
    assert outcomes_kept(file, "abd", [first, second]) == []


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"base": "other"}'])
def test_what_is_no_record_of_a_run_is_passed_over(text: str | None, tmp_path: Path):
    from mutate import outcomes_kept

    file = tmp_path / "mutants-core.json"
    if text is not None:
        file.write_text(text)
    assert outcomes_kept(file, "abc", []) == []


def test_what_runs_ends_with_the_program(start_program: StartProgram, tmp_path: Path):
    """A mutant may run for ever, and would do so after the run that tries it was stopped."""
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT / "tools")!r})
from pathlib import Path
import mutate
signal.signal(signal.SIGTERM, mutate.end)
mutate.run(["sh", "-c", "sleep 1000 & echo $! > {tmp_path}/child; wait"], Path({str(tmp_path)!r}), 600)
"""
    program = start_program(sys.executable, "-c", code)
    child = tmp_path / "child"
    soon(lambda: child.exists() and child.read_text().endswith("\n"))
    pid = int(child.read_text())
    program.terminate()
    program.wait(timeout=30)
    soon(lambda: not is_running(pid))


def soon(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("processes")
def test_the_end_of_what_a_mutant_prints_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import mutate

    monkeypatch.setattr(mutate, "KEPT_OUTPUT", 1000)
    script = "seq 100000; echo '[  FAILED  ] Engine.Test'; exit 3"
    status, output = mutate.run(["sh", "-c", script], tmp_path, 60)
    assert (status, len(output)) == (3, 1000) and mutate.failed_test(status, output) == "Engine.Test"
    assert mutate.run(["sh", "-c", "echo begun; sleep 100"], tmp_path, 0.5) == (124, "begun\n")
