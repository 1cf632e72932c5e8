"""tools/check_words.py, on a small tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from processes import RunProgram
from repository import ROOT

CODE = """// Somebody reads it: two words of a line.
class Engine {
  int a_ = 0;  // and goes on here
  int b_ = 0;  // Bytes.
};
const char* text = "somebody";
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    engine = tmp_path / "src" / "residency" / "engine.h"
    for directory in (engine.parent, tmp_path / "tools", tmp_path / "python" / "innkeeper"):
        directory.mkdir(parents=True)
    engine.write_text(CODE)
    for name in ("README.md", "ARCHITECTURE.md"):
        (tmp_path / name).write_text("One line of six words.\n")
    (tmp_path / "python" / "innkeeper" / "a.py").write_text("from innkeeper import b\n")
    (tmp_path / "python" / "innkeeper" / "b.py").write_text("from innkeeper.a import c\n")
    return tmp_path


@pytest.fixture
def check(tree: Path, run_python: RunProgram) -> Callable[..., tuple[int, list[str]]]:
    def run(*words: str, limits: str) -> tuple[int, list[str]]:
        (tree / "tools" / "words.txt").write_text(limits + "\n")
        done = run_python(ROOT / "tools" / "check_words.py", *words, WORDS_OF=str(tree))
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return run


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("word 0 somebody: name the actor", "somebody: 1, at most 0 (name the actor)"),
        ("word 2 somebody: name the actor", "somebody: 1 are left of 2; run tools/check_words.py --lower"),
        ("name 0 b_: bytes", "b_: 1, at most 0 (bytes)"),
        ("measure 1 declarations of Engine: 60", "declarations of Engine: 2, at most 1 (60)"),
        ("measure 0 trailing comments that are fragments, per cent: 2", "per cent: 50.0, at most 0 (2)"),
        ("measure 0 files of Python in circles of imports: 0", "circles of imports: 2, at most 0 (0)"),
        ("measure 4 words of ARCHITECTURE.md: 1", "words of ARCHITECTURE.md: 5, at most 4 (1)"),
    ],
)
def test_what_is_above_its_ceiling_is_refused(
    check: Callable[..., tuple[int, list[str]]], limits: str, says: str
) -> None:
    status, lines = check(limits=limits)
    assert status == 1 and lines[-1].endswith(says)


def test_what_holds(check: Callable[..., tuple[int, list[str]]]) -> None:
    limits = "word 1 somebody: name the actor\nname 0 c_: none\nmeasure 9 lines of engine.h: 250"
    assert check(limits=limits) == (0, ["words: 3 lines hold"])


def test_a_file_that_is_named_is_there_or_has_a_line(
    check: Callable[..., tuple[int, list[str]]], tree: Path
) -> None:
    note = (
        "// residency/engine.h, a.py and ../x.md; gone.cc:7 was, build/y.md will be. <sys/mount.h>; b/gone.h."
    )
    (tree / "src" / "a.h").write_text(f"{note}\n")
    assert check(limits="word 1 somebody: why") == (1, ["src/a.h names b/gone.h, which is not there"])
    limits = "word 1 somebody: why\nfile 1 b/gone\\.h: elsewhere"
    assert check(limits=limits) == (0, ["words: 2 lines hold"])
    (tree / "src" / "a.h").unlink()
    said = "b/gone\\.h: 0 are left of 1; run tools/check_words.py --lower"
    assert check(limits=limits) == (1, [said])


def test_lower_writes_the_figures(check: Callable[..., tuple[int, list[str]]], tree: Path) -> None:
    status, _ = check("--lower", limits="# kept\nword 7 somebody: why: not\nname 0 b_: more than its ceiling")
    assert status == 0
    kept = (tree / "tools" / "words.txt").read_text().splitlines()
    assert kept == ["# kept", "word 1 somebody: why: not", "name 0 b_: more than its ceiling"]
