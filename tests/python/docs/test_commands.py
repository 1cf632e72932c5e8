"""Every command that a document, the Makefile, the man page or a script's docstring names works.

documented_commands.py says how each is tried: as it stands, in a shorter form, or where else the tests run
it. A command that is named and not listed fails, and so does one that is listed and named no longer.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from documented_commands import TESTS, TRIED, Elsewhere, Short
from fake_machine import SCRIPT, FakeMachine
from processes import RunProgram
from repository import ROOT

PROGRAMS = (
    r"make [\w-]+|tools/\w|(?:bench|examples)/\w+\.py -|pip install|cmake -|ctest -|python3? [\w-]"
    r"|\.venv/bin/\w|build/\S+/(?:tests_one|\w+_(?:test|bench))|innkeeper (?:-|[a-z]+(?: |$))|man |id=\$\("
)
COMMAND = re.compile(rf'^(?:[A-Z_]+=(?:\$\([^)]*\)|"[^"]*"|\S*) )*(?:{PROGRAMS})')
MENTIONS = re.compile(r"^tools/[\w.]+$")  # A file, unless it can be run.


def is_command(text: str) -> bool:
    if MENTIONS.match(text) and not ((ROOT / text).is_file() and os.access(ROOT / text, os.X_OK)):
        return False
    return COMMAND.match(text) is not None


def tidy(text: str) -> str:
    return " ".join(re.sub(r"\s#.*", "", text).split())


def in_markdown(text: str) -> set[str]:
    found, fence = set(), None
    for line in text.splitlines():
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence == "bash" or (fence == "text" and COMMAND.match(line)):
            found.add(tidy(line))
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))
    return found | {tidy(span) for span in spans if is_command(tidy(span))}


def in_docstring(text: str) -> set[str]:
    described = ast.get_docstring(ast.parse(text)) or ""
    lines = [tidy(line) for line in described.splitlines() if line.startswith("    ")]
    spans = [tidy(span) for span in re.findall(r"``?([^`]+)``?", described)]
    return {each for each in lines + spans if is_command(each)}


def named() -> dict[str, str]:
    """Files by the commands that they name."""
    found: dict[str, str] = {}

    def note(path: Path, commands: set[str]) -> None:
        for command in commands - {""}:
            if not command.startswith("export "):
                found.setdefault(command, path.relative_to(ROOT).as_posix())

    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]:
        note(path, in_markdown(path.read_text()))
    for directory in ("bench", "examples", "tools", "tests/gpu"):
        for path in (ROOT / directory).glob("*.py"):
            note(path, in_docstring(path.read_text()))
    makefile = ROOT / "Makefile"
    phony = re.search(r"^\.PHONY: (.*)$", makefile.read_text(), re.MULTILINE)
    assert phony is not None
    note(makefile, {f"make {target}" for target in phony.group(1).split()})
    man = ROOT / "docs/innkeeper.1"
    examples = re.search(r"\.SH EXAMPLES\n\.nf\n(.*?)\.fi", man.read_text(), re.DOTALL)
    assert examples is not None
    note(man, {tidy(line.replace("\\", "")) for line in examples.group(1).splitlines()})
    return found


NAMED = named()


def test_every_command_that_is_named_is_tried() -> None:
    missing = [f"{command}   ({NAMED[command]})" for command in NAMED if command not in TRIED]
    assert not missing, "say in TRIED how each is tried:\n" + "\n".join(missing)
    gone = [command for command in TRIED if command not in NAMED]
    assert not gone, "no longer named anywhere:\n" + "\n".join(gone)


def test_a_command_is_found_wherever_it_is_named() -> None:
    text = "Run `make x` or `tools/fuzz.sh 9`; `tools/loc.py` says.\n```bash\npip install y  # why\n```\n"
    text += "```text\nINNKEEPER_SEED=1 build/dev/tests/a_test\n\n3 passed\n```\n`make`, `innkeeper warn: x`\n"
    assert in_markdown(text) == {
        "make x",
        "tools/fuzz.sh 9",
        "pip install y",
        "INNKEEPER_SEED=1 build/dev/tests/a_test",
    }
    assert in_docstring('"""A.\n\n    python bench/a.py 3\n\nOr ``bench/a.py --b``, not ``a.py``."""') == {
        "python bench/a.py 3",
        "bench/a.py --b",
    }


@pytest.mark.parametrize("place", sorted({how.place for how in TRIED.values() if isinstance(how, Elsewhere)}))
def test_what_is_tried_elsewhere_is(place: str) -> None:
    file, mark, name = place.partition("::")
    if mark:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"no test {place}"
    else:
        scripts = [path.read_text() for path in (ROOT / "tools").iterdir() if path.suffix in (".sh", ".py")]
        assert any(place in script for script in [*scripts, (ROOT / "Makefile").read_text()])


class Shell:
    """A shell with set-up's programs in its PATH; three idle fake GPUs; no file of a user is touched."""

    def __init__(self, run_program: RunProgram, env: dict[str, str]) -> None:
        self.run_program, self.env = run_program, env

    def __call__(self, command: str, cwd: Path = ROOT, **variables: str) -> tuple[int, str]:
        """Exit status of a command, and its output, errors too."""
        words = ("bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{command}")
        done = self.run_program(*words, cwd=cwd, env=self.env | variables, timeout=1200)
        return done.returncode, done.stdout


@pytest.fixture
def shell(run_program: RunProgram, machine: FakeMachine, tmp_path: Path) -> Shell:
    (machine.directory / "script").write_text(re.sub(r"(memory \S+) 0 \S+", r"\1 0 0", SCRIPT))
    given = machine.environment(
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        VENV=sys.prefix,
        INNKEEPER_QUEUE_DIR=str(tmp_path / "queue"),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        TMPDIR=str(tmp_path),
    )
    for name in ("INNKEEPER_NODES", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTEST_ARGS", "PYTEST_CURRENT_TEST"):
        given.pop(name, None)
    return Shell(run_program, given)


RUN: dict[str, str] = {}  # Commands to run, each with a part of its output.
for name, how in TRIED.items():
    if isinstance(how, Short):
        RUN[how.command or name] = how.says or RUN.get(how.command or name, "")


FETCHES = re.compile(r"make setup|make docs|make check-torch|pip install|--install")


@pytest.mark.verify
@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[pytest.mark.network] if FETCHES.search(each) else []) for each in RUN],
)
def test_command(shell: Shell, command: str) -> None:
    if TESTS in command and not (ROOT / TESTS.split()[0]).exists():
        pytest.skip("core's tests are not built: make check")
    # `make fresh` runs as another user than root, and needs a directory that other users may enter.
    status, said = shell(command, **({"TMPDIR": "/var/tmp"} if command.startswith("make fresh") else {}))
    if status != 0 and re.search(r"No matching distribution|Could not fetch|Connection", said):
        pytest.skip("pip reaches no index from here")
    assert status == 0, said[-6000:]
    assert RUN[command] in said, said[-6000:]


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    """A copy of the files that `make format` and `make clean` need, so that the repository is unchanged."""
    directory = tmp_path / "checkout"
    shutil.copytree(ROOT / "tools", directory / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", ".clang-format"):
        shutil.copy(ROOT / name, directory)
    for name in ("src", "include", "tests", "bench", "examples", "build"):
        (directory / name).mkdir()
    return directory


def test_make_format_formats(shell: Shell, small_checkout: Path) -> None:
    (small_checkout / "src/a.cc").write_text("int  f( ){return 1 ;}\n")
    (small_checkout / "tests/a.py").write_text("x = [1,\n  2]\n")
    assert shell("make -n format") == (0, "tools/setup.sh check\ntools/lint.sh fix\n")
    status, said = shell("tools/lint.sh format", small_checkout)
    assert status == 1 and said.splitlines()[-1] == "src/a.cc", said
    status, said = shell("tools/lint.sh fix", small_checkout)
    assert status == 0, said
    assert (small_checkout / "src/a.cc").read_text() == "int f() { return 1; }\n"
    assert (small_checkout / "tests/a.py").read_text() == "x = [1, 2]\n"
    assert shell("tools/lint.sh format", small_checkout)[0] == 0


def test_make_clean_removes_what_was_built(shell: Shell, small_checkout: Path) -> None:
    (small_checkout / ".venv").mkdir()
    status, said = shell("make clean", small_checkout)
    assert status == 0, said
    assert not (small_checkout / "build").exists() and (small_checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("false", 1, "fresh: false ended with 1"),
        ("sh -c 'test -d .git && test ! -e build && test ! -e .venv && echo $HOME'", 0, "innkeeper-fresh."),
        ("sh -c 'exit 7'", 7, "ended with 7"),
    ],
)
def test_fresh_runs_in_a_clone_and_ends_as_the_command(
    shell: Shell, words: str, status: int, says: str
) -> None:
    ended, said = shell(f"USER_MODE=1 TMPDIR=/var/tmp tools/fresh.sh {words}")
    assert ended == status and says in said, said
    left = re.findall(r"/var/tmp/innkeeper-fresh\.\w+", said)
    assert not any(Path(directory).exists() for directory in left)
