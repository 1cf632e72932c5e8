"""tools/mutate: a stopped run of hours resumes where it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import StartProgram, is_running, wait_until
from repository import ROOT


@pytest.fixture(autouse=True)
def _tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))


def test_outcomes_of_the_same_commit_are_kept(tmp_path: Path):
    from mutants_tried import Outcome, Tried

    first, second, third = three_mutants()
    outcomes = [Outcome(first, "killed", "Engine.Test", 2.5), Outcome(second, "survived")]
    file = tmp_path / "mutants-core.json"
    for outcome in outcomes:
        Tried(file).add("abc", outcome)
    assert Tried(file).at("abc", [first, second, third]) == outcomes
    assert Tried(file).at("abc", [third, second]) == outcomes[1:]
    assert Tried(file).at("abd", [first, second]) == []
    Tried(file).begin_anew()
    assert Tried(file).at("abc", [first, second]) == []


def test_runs_in_parts_reach_each(tmp_path: Path):
    """Also when each run has another commit, like those of every night."""
    from mutants_tried import Outcome, Tried

    mutants = three_mutants()
    file = tmp_path / "mutants-core.json"
    first = [Tried(file).longest_ago_first(base, mutants)[0] for base in ("0", "1", "5")]
    assert first == [mutants[0], mutants[1], mutants[2]], "without a record the commit says where to begin"
    order = []
    for base in ("a0", "b1", "c2", "d3", "e4", "f5"):
        tried = Tried(file)
        order.append(tried.longest_ago_first(base, mutants)[0])
        tried.add(base, Outcome(order[-1], "killed", "Engine.Test"))
    assert set(order[:3]) == set(mutants) and order[3:] == order[:3]


def three_mutants() -> list:  # type: ignore[type-arg]
    from mutation import Mutant

    return [Mutant(f"a/{n}", "src/a.cc", "x", "y") for n in range(3)]


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"base": "other"}', '{"a/0": {"base": "abc"}}'])
def test_what_is_no_record_of_a_run_is_passed_over(text: str | None, tmp_path: Path):
    from mutants_tried import Tried

    file = tmp_path / "mutants-core.json"
    if text is not None:
        file.write_text(text)
    assert Tried(file).at("abc", three_mutants()) == []
    assert len(Tried(file).longest_ago_first("abc", three_mutants())) == 3


@pytest.mark.usefixtures("processes")
def test_one_shard_that_fails_ends_the_others(tmp_path: Path):
    import mutate

    script = """
if [ $GTEST_SHARD_INDEX = 2 ]; then echo "[  FAILED  ] Engine.Test"; exit 3; fi
sleep 1000 & echo $! > $GTEST_SHARD_INDEX; wait
"""
    status, output = mutate.run(["bash", "-c", mutate.IN_SHARDS, "shards", "sh", "-c", script], tmp_path, 60)
    assert status == 3 and mutate.failed_test(status, output) == "Engine.Test"
    children = [int(child.read_text()) for child in tmp_path.iterdir()]
    wait_until(lambda: not any(is_running(pid) for pid in children))
    passing = ["bash", "-c", mutate.IN_SHARDS, "shards", "sh", "-c", "echo $GTEST_SHARD_INDEX"]
    status, output = mutate.run(passing, tmp_path, 60)
    assert status == 0 and sorted(output.split()) == ["0", "1", "2", "3"]


def test_what_runs_ends_with_the_program(start_program: StartProgram, tmp_path: Path):
    """A mutant may run for ever, and would do so after its run was stopped."""
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
    wait_until(lambda: child.exists() and child.read_text().endswith("\n"))
    pid = int(child.read_text())
    program.terminate()
    program.wait(timeout=30)
    wait_until(lambda: not is_running(pid))


@pytest.mark.usefixtures("processes")
def test_what_has_left_its_group_ends_as_well(tmp_path: Path):
    import mutate

    loop = "echo $$ > child; while :; do sleep 0.01; done"
    script = f"setsid sh -c '{loop}' & until [ -s child ]; do sleep 0.01; done"
    assert mutate.run(["sh", "-c", script], tmp_path, 60) == (0, "")
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))


@pytest.mark.usefixtures("processes")
def test_the_end_of_what_a_mutant_prints_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    import mutate

    monkeypatch.setattr(mutate, "KEPT_OUTPUT", 1000)
    script = "seq 100000; echo '[  FAILED  ] Engine.Test'; exit 3"
    status, output = mutate.run(["sh", "-c", script], tmp_path, 60)
    assert (status, len(output)) == (3, 1000) and mutate.failed_test(status, output) == "Engine.Test"
    assert mutate.run(["sh", "-c", "echo begun; sleep 100"], tmp_path, 0.5) == (124, "begun\n")
