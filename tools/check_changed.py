"""The commands of `make check CHANGED=1`: the parts of `make check` that the changed files affect.

Usage: check_changed.py [--list] [REVISION]

Changed files are those that differ from REVISION (HEAD), untracked ones included. Core's tests are those of
the directories of src/ that may include a changed one. Python tests are those of the topics in TOPICS, and
the test files that changed or use a changed helper, directly or through other helpers. The layers and sizes
are always checked. A file without a rule, such as a CMakeLists.txt, affects all of make check. With --list
it prints the commands and runs none.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from check_layers import direct_links, reach

TOP = Path(__file__).parent.parent
CXX = (".h", ".cc")
# Path of a source -> the directories of tests/python that test it; the first matching row counts. A source
# without a row is tested by no Python test here; `make check` runs them all.
TOPICS: list[tuple[str, list[str]]] = [
    ("src/torch/distributed/", ["distributed"]),
    ("src/torch/kernels/", ["device", "autograd"]),
    ("src/torch/", ["device", "memory"]),
    ("src/bindings/", ["device", "memory"]),
    ("include/innkeeper/torch/", ["device"]),
    ("python/innkeeper/integrations/", ["libraries"]),
    ("python/innkeeper/inductor/", ["compile"]),
    ("python/innkeeper/frameworks/", ["leases"]),
    ("python/innkeeper/cuda_compat/", ["scripts"]),
    ("python/innkeeper/managed_device/", ["device"]),
    ("python/innkeeper/distributed.py", ["distributed"]),
    ("python/innkeeper/data_parallel.py", ["distributed"]),
    ("python/innkeeper/torch_patches/sharded_random.py", ["distributed"]),
    ("python/innkeeper/choice.py", ["leases"]),
    ("python/innkeeper/leases.py", ["leases"]),
    ("python/innkeeper/gpus.py", ["leases"]),
    ("python/innkeeper/slurm.py", ["leases"]),
    ("python/innkeeper/", ["device", "memory"]),
    ("docs/", ["docs"]),
    ("README.md", ["docs"]),
    ("ARCHITECTURE.md", ["docs"]),
    ("CONTRIBUTING.md", ["docs"]),
    ("CHANGELOG.md", ["docs"]),
    ("examples/", ["docs"]),
]
# Files that another tier tests, not make check.
LATER = (
    "bench/",
    "tests/compat/",
    "tests/consumer/",
    "tests/cuda/",
    "tests/fake_cuda/",
    "tests/fuzz/",
    "tests/gpu/",
    "tests/pytorch_own/",
    "tests/torch/",
)
EVERYTHING = ["CHANGED= tools/check.sh"]
TESTED = ("tests/python", "tests/cli")  # directories of the tests of `make check`
PROGRAM = (
    "src/cli/",
    "src/queue/",
    "src/lease/",
    "src/board/",
    "src/telemetry/",
    "src/replay/",
    "src/config/",
)


def changed_files(revision: str) -> list[str]:
    """Files that differ from the revision, deleted ones too, and files that git does not track."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    tracked = git("diff", "--name-only", "--no-renames", revision)
    return sorted({*tracked, *git("ls-files", "--others", "--exclude-standard")})


def suites_of(files: Iterable[Path]) -> list[str]:
    """The names of the test suites in C++ files."""
    texts = "\n".join(path.read_text() for path in files if path.exists())
    return sorted(set(re.findall(r"^(?:TYPED_)?TEST(?:_F|_P|)\(\s*(\w+),", texts, re.MULTILINE)))


def core_filter(changed: Iterable[str]) -> str:
    """GoogleTest's filter for core's tests that the files reach; empty if there are none."""
    table = {name: links for name, links in direct_links().items() if name not in ("torch", "bindings")}
    files: set[Path] = set()
    for name in changed:
        parts = Path(name).parts
        if Path(name).suffix not in CXX:
            continue
        if name.startswith("tests/support/") or (name.startswith("include/") and "torch" not in parts):
            return "*"
        if parts[0] == "tests" and parts[1] in ("unit", "model", "fault", "stress"):
            files |= {TOP / name} if name.endswith("_test.cc") else set((TOP / name).parent.glob("*_test.cc"))
        if parts[0] == "src" and parts[1] in table:
            above = {directory for directory in table if parts[1] in reach(directory, table)}
            for directory in above:
                files |= set((TOP / "tests/unit" / directory).glob("*_test.cc"))
            if above & {"residency", "queue", "lease"}:
                for part in ("model", "fault", "stress"):
                    files |= set((TOP / "tests" / part).glob("*_test.cc"))
    return ":".join(f"*{suite}.*" for suite in suites_of(files))


@cache
def python_texts() -> dict[Path, str]:
    """Path -> text, of all Python files of tests/."""
    return {path: path.read_text() for path in (TOP / "tests").rglob("*.py")}


@cache
def direct_users(stem: str) -> frozenset[Path]:
    """Python files of tests/ that import a module of this name, start it by path, or name it as a plugin."""
    name = re.escape(stem)
    used = re.compile(rf'^\s*(?:from|import) {name}\b|\b{name}\.py\b|"{name}"', re.MULTILINE)
    return frozenset(user for user, text in python_texts().items() if stem in text and used.search(text))


def users_of(helper: str) -> set[str]:
    """Test files and directories that a helper in tests/ reaches: those that use it, or a helper that does.

    A conftest.py reaches its whole directory.
    """
    found: set[str] = set()
    todo, seen = [TOP / helper], {TOP / helper}
    while todo:
        path = todo.pop()
        if path.name == "conftest.py":
            found |= {name for name in TESTED if (TOP / name).is_relative_to(path.parent)}
            continue
        for user in direct_users(path.stem) - seen:
            seen.add(user)
            if user.name == "conftest.py" or not user.name.startswith("test_"):
                todo.append(user)
            elif any(user.is_relative_to(TOP / name) for name in TESTED):
                found.add(str(user.relative_to(TOP)))
    return found


def python_tests(changed: Iterable[str]) -> list[str]:
    """Files and directories of Python tests that the files reach."""
    found: set[str] = set()
    for name in changed:
        path = Path(name)
        if path.name.startswith("test_") and name.startswith(TESTED):
            if (TOP / name).exists():
                found.add(name)
        elif name.startswith("tests/") and path.suffix == ".py":
            found |= users_of(name)
        elif name.startswith("tools/"):
            found.add("tests/python/docs")
        topics = next((topics for prefix, topics in TOPICS if name.startswith(prefix)), [])
        found |= {f"tests/python/{topic}" for topic in topics}
        if name.startswith(PROGRAM):
            found.add("tests/cli")
    return sorted(name for name in found if not any(str(above) in found for above in Path(name).parents))


def has_a_rule(name: str) -> bool:
    """Whether the tests that a file affects are known."""
    if name.endswith(("CMakeLists.txt", ".cmake")):
        return False
    is_a_test = Path(name).name.startswith("test_") and name.startswith(TESTED)  # the test may be deleted
    return is_a_test or name.startswith(LATER) or bool(core_filter([name]) or python_tests([name]))


def commands(changed: list[str]) -> list[str]:
    """The commands to run, as lines for bash in which tools/run_tests.sh is sourced."""
    unknown = [name for name in changed if not has_a_rule(name)]
    if unknown:
        print(f"no rule says what {', '.join(unknown)} reaches, so all is run")
        return EVERYTHING
    lines = ["tools/lint.sh structure"]
    cxx = [name for name in changed if name.endswith(CXX)]
    python = [name for name in changed if name.endswith(".py") and (TOP / name).exists()]
    if cxx:
        lines.append("tools/lint.sh format")
    if python:
        lines += [
            f'"$VENV_PYTHON" -m ruff {word} --quiet {shlex.join(python)}'
            for word in ("format --check", "check")
        ]
    if any(name.startswith(("python/", "tools/", "cmake/")) for name in python):
        lines.append('"$VENV_PYTHON" -m mypy')
    wanted, tests = core_filter(cxx), python_tests(changed)
    if wanted or any(name.startswith("tests/cli") for name in tests):
        lines.append("build_core_tests")  # builds the fake libraries for the program's tests, too
    if wanted:
        lines.append(f"run_core_tests \"$WHEEL_BUILD/tests/tests_one\" core '{wanted}'")
    if tests:
        lines.append(f"run_python_tests check {shlex.join(tests)}")
    return lines


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    only_list = "--list" in arguments
    names = [argument for argument in arguments if argument != "--list"]
    changed = changed_files(names[0] if names else "HEAD")
    lines = commands(changed)
    print(f"{len(changed)} changed files reach:\n" + "\n".join(f"  {line}" for line in lines), flush=True)
    if only_list:
        return 0
    # Each runs even if another fails; without a build there is no test to run.
    each = [line if line.startswith("build") else f"{line} || failed=1" for line in lines]
    verdict = '[ "$failed" = 0 ] || die "failed; tests that failed again: make test FAILED=1"; echo passed'
    script = "\n".join(["source tools/common.sh; source tools/run_tests.sh; failed=0", *each, verdict])
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=TOP, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
