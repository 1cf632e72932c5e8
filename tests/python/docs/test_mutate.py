"""tools/mutate: a run of hours that was stopped goes on where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
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
