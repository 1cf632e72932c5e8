"""tools/check_figures.py finds figures without a run or older than their code; no history is no error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import RunProgram
from repository import ROOT

MARK = "Measured at COMMIT by `python bench/queue.py 300`, of `src/queue`."
DOCUMENT = f"# What it costs\n\n{MARK}\n\n| jobs | time |\n|---|---|\n| 300 | 5.6 ms |\n"
CODE = "".join(f"int line_{i};\n" for i in range(40))


class Tree:
    """A repository with code, a benchmark, and a document with figures of the commit before."""

    def __init__(self, root: Path, run_program: RunProgram) -> None:
        self.root, self.run_program = root, run_program
        for name, text in {
            "src/queue/line.cc": CODE,
            "bench/queue.py": "print()\n",
            "Makefile": "bench: setup\n\ttrue\n",
            "CMakePresets.json": '{"configurePresets": [{"name": "release"}]}',
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        self.git("init", "-q")
        self.commit("code")
        self.write(DOCUMENT.replace("COMMIT", self.head()))
        self.commit("figures")

    def git(self, *arguments: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = self.run_program("git", "-C", self.root, *author, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def head(self) -> str:
        return self.git("rev-parse", "--short=7", "HEAD")

    def commit(self, subject: str) -> None:
        self.git("add", ".")
        self.git("commit", "-q", "-m", subject)

    def check(self, *arguments: str, root: Path | None = None) -> tuple[int, str]:
        """Exit code and output of the check of the whole tree, or of another."""
        script = ROOT / "tools/check_figures.py"
        done = self.run_program(sys.executable, script, *arguments, root or self.root)
        assert not done.stderr
        return done.returncode, done.stdout

    def write(self, text: str) -> None:
        """Makes `text` the text of the document."""
        (self.root / "docs").mkdir(exist_ok=True)
        (self.root / "docs/cost.md").write_text(text)

    def change(self, old: str, new: str) -> None:
        """Replaces a part of the document."""
        text = (self.root / "docs/cost.md").read_text()
        assert old in text
        self.write(text.replace(old, new))

    def rewrite(self, lines: int) -> None:
        """Changes this number of lines of the code."""
        code = CODE.splitlines(keepends=True)
        new = "".join(f"long line_{i};\n" for i in range(lines))
        (self.root / "src/queue/line.cc").write_text(new + "".join(code[lines:]))


@pytest.fixture
def tree(run_program: RunProgram, tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree", run_program)


def test_a_figure_of_this_code_is_accepted(tree: Tree):
    assert tree.check() == (0, "")
    assert tree.check("--fresh") == (0, "")


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
def test_a_figure_without_its_run_is_found(tree: Tree, old: str, new: str, said: str):
    tree.change(old, new)
    code, out = tree.check()
    assert code == 1 and said in out


@pytest.mark.parametrize(
    "text",
    ["It took 3 ms.", "| 4 | 1.5 s |", "It does 200 adds a second.", "| ms | wall |", "```\n2.5 GiB/s\n```"],
)
def test_figures_are_known_by_their_units(tree: Tree, text: str):
    tree.write(text)
    code, out = tree.check()
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
def test_settings_sizes_and_output_that_is_run_again_are_no_figures(tree: Tree, text: str):
    tree.write(text)
    assert tree.check() == (0, "")


def test_a_commit_that_did_not_land_is_found(tree: Tree):
    tree.git("checkout", "-q", "-b", "aside")
    (tree.root / "aside").write_text("aside")
    tree.commit("aside")
    aside = tree.head()
    tree.git("checkout", "-q", "-")
    tree.write(DOCUMENT.replace("COMMIT", aside))
    code, out = tree.check()
    assert code == 1 and f"{aside} is not in the history" in out


def test_a_figure_older_than_its_code_says_so(tree: Tree):
    tree.rewrite(4)
    assert tree.check() == (0, ""), "a tenth"
    tree.rewrite(5)
    code, out = tree.check()
    assert code == 1 and "docs/cost.md:1: stale, src/queue changed by 12% since" in out
    tree.change(" by `python", " (stale) by `python")
    assert tree.check() == (0, "")
    code, out = tree.check("--fresh")
    assert code == 1 and "measure again" in out
    tree.rewrite(0)
    code, out = tree.check()
    assert code == 1 and 'take "(stale)" out' in out


def test_comments_are_not_code(tree: Tree):
    (tree.root / "src/queue/line.cc").write_text("// why\n" * 40 + CODE)
    assert tree.check() == (0, "")


def test_a_commit_that_only_renames_does_not_count(tree: Tree):
    tree.rewrite(lines=20)
    tree.commit("rename")
    assert "stale" in tree.check()[1]
    (tree.root / ".git-blame-ignore-revs").write_text(f"# renames\n{tree.git('rev-parse', 'HEAD')}\n")
    assert tree.check() == (0, "")
    tree.rewrite(lines=30)
    assert "stale" in tree.check()[1], "but what comes after it does"


def test_the_commands_own_source_counts(tree: Tree):
    (tree.root / "bench/queue.py").write_text("print(2)\n" * 20)
    code, out = tree.check()
    assert code == 1 and "stale" in out


def test_rows_that_name_their_command_and_commit_are_history(tree: Tree):
    table = "| command | commit | tried |\n|---|---|---|\n| `python bench/queue.py` | COMMIT | 3 ms |\n"
    landed = tree.head()
    tree.rewrite(40)
    tree.write(table.replace("COMMIT", landed).replace("3 ms", "3"))
    assert tree.check() == (0, "")
    tree.write(table.replace("COMMIT", "0123abc"))
    code, out = tree.check()
    assert code == 1 and "there is no commit 0123abc" in out


def test_a_clone_without_history_is_no_error(run_program: RunProgram, tree: Tree, tmp_path: Path):
    tree.git("clone", "-q", "--depth=1", f"file://{tree.root}", str(tmp_path / "shallow"))
    code, out = tree.check(root=tmp_path / "shallow")
    assert code == 0 and "does not reach back" in out
    tree.git("archive", "--prefix=plain/", "-o", str(tmp_path / "plain.tar"), "HEAD")
    assert run_program("tar", "xf", "plain.tar", cwd=tmp_path).returncode == 0
    code, out = tree.check(root=tmp_path / "plain")
    assert code == 0 and "no git here" in out
