"""tools/check_figures.py finds figures without their run or older than their code; no history is no error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

MARK = "Measured at COMMIT by `python bench/queue.py 300`, of `src/queue`."
DOCUMENT = f"# What it costs\n\n{MARK}\n\n| jobs | time |\n|---|---|\n| 300 | 5.6 ms |\n"
CODE = "".join(f"int line_{i};\n" for i in range(40))


def git(root: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", "-C", str(root), *author, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def check(root: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and what was printed, of the check of a whole tree."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/check_figures.py"), *arguments, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.returncode, done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with code, a benchmark, and a document with figures of the commit before."""
    root = tmp_path / "tree"
    for name, text in {
        "src/queue/line.cc": CODE,
        "bench/queue.py": "print()\n",
        "Makefile": "bench: setup\n\ttrue\n",
        "CMakePresets.json": '{"configurePresets": [{"name": "release"}]}',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root.parent, "init", "-q", str(root))
    commit(root, "code")
    write(root, DOCUMENT.replace("COMMIT", git(root, "rev-parse", "--short=7", "HEAD")))
    commit(root, "figures")
    return root


def commit(root: Path, subject: str) -> None:
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", subject)


def write(root: Path, text: str) -> None:
    (root / "docs").mkdir(exist_ok=True)
    (root / "docs" / "cost.md").write_text(text)


def changed(root: Path, old: str, new: str) -> None:
    text = (root / "docs/cost.md").read_text()
    assert old in text
    write(root, text.replace(old, new))


def rewrite(root: Path, lines: int) -> None:
    code = CODE.splitlines(keepends=True)
    (root / "src/queue/line.cc").write_text(
        "".join(f"long line_{i};\n" for i in range(lines)) + "".join(code[lines:])
    )


def test_a_figure_of_this_code_is_accepted(tree: Path):
    assert check(tree) == (0, "")
    assert check(tree, "--fresh") == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (MARK.split("COMMIT")[1], "", 'write "Measured at COMMIT by'),
        ("bench/queue.py 300", "bench/gone.py", "no such command here: python bench/gone.py"),
        ("python bench/queue.py 300", "make tea", "no such command here: make tea"),
        (
            "python bench/queue.py 300",
            "build/wheel/bench/queue_bench",
            "no such command here: build/wheel",
        ),
        ("`src/queue`", "`src/gone`", "there is no src/gone"),
        (
            "Measured at ",
            "Measured at 0123abc by `make bench`, of `src/queue`. Measured at ",
            "no commit 0123abc",
        ),
        (
            "Measured at ",
            "Measured at lately by `make bench`, of `src/queue`. Measured at ",
            "lately is no commit",
        ),
        ("\n| jobs", "\n# Elsewhere\n\n| jobs", "docs/cost.md:9: a measured figure"),
    ],
)
def test_a_figure_without_its_run_is_found(tree: Path, old: str, new: str, said: str):
    changed(tree, old, new)
    code, out = check(tree)
    assert code == 1 and said in out


@pytest.mark.parametrize(
    "text",
    ["It took 3 ms.", "| 4 | 1.5 s |", "It does 200 adds a second.", "| ms | wall |", "```\n2.5 GiB/s\n```"],
)
def test_figures_are_known_by_their_units(tree: Path, text: str):
    write(tree, text)
    code, out = check(tree)
    assert code == 1 and "a measured figure" in out


@pytest.mark.parametrize(
    "text",
    [
        "Asked every 5 s.",
        "`sleep 1.5 s`",
        "20 GiB of 139.0 GiB",
        "```python\nrun()\n```\n\n```text\n1.5 s\n```",
    ],
)
def test_settings_sizes_and_output_that_is_run_again_are_no_figures(tree: Path, text: str):
    write(tree, text)
    assert check(tree) == (0, "")


def test_a_commit_that_did_not_land_is_found(tree: Path):
    git(tree, "checkout", "-q", "-b", "aside")
    (tree / "aside").write_text("aside")
    commit(tree, "aside")
    aside = git(tree, "rev-parse", "--short=7", "HEAD")
    git(tree, "checkout", "-q", "-")
    write(tree, DOCUMENT.replace("COMMIT", aside))
    code, out = check(tree)
    assert code == 1 and f"{aside} is not in the history" in out


def test_a_figure_older_than_its_code_says_so(tree: Path):
    rewrite(tree, 4)
    assert check(tree) == (0, ""), "a tenth"
    rewrite(tree, 5)
    code, out = check(tree)
    assert code == 1 and "docs/cost.md:1: stale, src/queue changed by 12% since" in out
    changed(tree, " by `python", " (stale) by `python")
    assert check(tree) == (0, "")
    code, out = check(tree, "--fresh")
    assert code == 1 and "measure again" in out
    rewrite(tree, 0)
    code, out = check(tree)
    assert code == 1 and 'take "(stale)" out' in out


def test_comments_are_not_code(tree: Path):
    (tree / "src/queue/line.cc").write_text("// why\n" * 40 + CODE)
    assert check(tree) == (0, "")


def test_the_commands_own_source_counts(tree: Path):
    (tree / "bench/queue.py").write_text("print(2)\n" * 20)
    code, out = check(tree)
    assert code == 1 and "stale" in out


def test_rows_that_name_their_command_and_commit_are_history(tree: Path):
    table = "| command | commit | tried |\n|---|---|---|\n| `python bench/queue.py` | COMMIT | 3 ms |\n"
    landed = git(tree, "rev-parse", "--short=7", "HEAD")
    rewrite(tree, 40)
    write(tree, table.replace("COMMIT", landed).replace("3 ms", "3"))
    assert check(tree) == (0, "")
    write(tree, table.replace("COMMIT", "0123abc"))
    code, out = check(tree)
    assert code == 1 and "there is no commit 0123abc" in out


def test_a_clone_without_history_is_no_error(tree: Path, tmp_path: Path):
    git(tree, "clone", "-q", "--depth=1", f"file://{tree}", str(tmp_path / "shallow"))
    code, out = check(tmp_path / "shallow")
    assert code == 0 and "does not reach back" in out
    git(tree, "archive", "--prefix=plain/", "-o", str(tmp_path / "plain.tar"), "HEAD")
    subprocess.run(["tar", "xf", "plain.tar"], cwd=tmp_path, check=True)
    code, out = check(tmp_path / "plain")
    assert code == 0 and "no git here" in out
