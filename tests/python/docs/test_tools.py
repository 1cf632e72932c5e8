"""The developer's tools: set-up concurrent with another apt-get, counting skips, repeating tests."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import RunProgram, StartProgram
from repository import ROOT

APT = """Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "{0}/none";
"""
needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt-get is not on this machine")


@pytest.fixture
def apt(tmp_path: Path) -> dict[str, str]:
    """An environment in which apt-get has locks and lists of its own, and no sources."""
    for directory in ("state/lists/partial", "cache/archives/partial"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("status", "sources.list"):
        (tmp_path / file).touch()
    config = tmp_path / "apt.conf"
    config.write_text(APT.format(tmp_path))
    return os.environ | {"APT_CONFIG": str(config)}


@pytest.fixture
def apt_get(start_program: StartProgram) -> StartProgram:
    """Starts set-up's apt-get with an environment and words."""
    script = 'set -euo pipefail; source tools/apt.sh; apt_get "$@"; echo through'
    return lambda env, *words: start_program("bash", "-c", script, "bash", *words, env=env)


@needs_apt
@pytest.mark.parametrize(
    ("lock", "command"),
    [
        ("state/lists/lock", "update"),
        ("cache/archives/lock", "clean"),
        ("lock-frontend", "autoremove"),
        ("lock", "autoremove"),
    ],
)
def test_setup_waits_for_another_apt_get_and_says_so(
    apt_get: StartProgram, tmp_path: Path, apt: dict[str, str], lock: str, command: str
) -> None:
    with (tmp_path / lock).open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        waiting = apt_get(apt, command)
        assert waiting.stdout is not None
        said = waiting.stdout.readline()
        assert said.startswith("Waiting for another apt-get: ") and f"{lock}. It is held by process" in said
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
    rest, complaint = waiting.communicate(timeout=60)
    assert (waiting.returncode, rest, complaint) == (0, "through\n", "")


@needs_apt
def test_setup_does_not_wait_for_ever(apt_get: StartProgram, tmp_path: Path, apt: dict[str, str]) -> None:
    with (tmp_path / "state/lists/lock").open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        begin = time.monotonic()
        waiting = apt_get(apt | {"APT_WAIT": "1"}, "update")
        _, complaint = waiting.communicate(timeout=60)
    assert waiting.returncode != 0 and time.monotonic() - begin >= 1
    assert "Could not get lock" in complaint


@needs_apt
def test_what_no_wait_cures_is_said_at_once(apt_get: StartProgram, apt: dict[str, str]) -> None:
    _, complaint = (failed := apt_get(apt, "install", "no-such-package")).communicate(timeout=60)
    assert failed.returncode != 0 and "Unable to locate package no-such-package" in complaint


@pytest.mark.parametrize(
    "script",
    [file.name for file in sorted((ROOT / "tools").glob("*.sh")) if "/common.sh" in file.read_text()],
)
def test_help_of_a_script_does_nothing_else(run_program: RunProgram, script: str) -> None:
    head = (ROOT / "tools" / script).read_text().splitlines()[1].removeprefix("# ")
    for word in ("--help", "-h"):
        done = run_program(ROOT / "tools" / script, word, timeout=20)
        assert (
            done.returncode == 0
            and done.stdout.startswith(head)
            and "set -" not in done.stdout
            and done.stderr == ""
        )


def test_repeating_names_what_failed_and_what_took_long(run_python: RunProgram, tmp_path: Path) -> None:
    good = run_python("tools/repeat.py", "3", "true")
    assert good.returncode == 0, good.stdout + good.stderr
    assert "3 runs of 1 tests: 0 runs failed, 0 tests took too long" in good.stdout
    now_and_then = tmp_path / "test_now_and_then.py"
    now_and_then.write_text(
        "import os, pathlib, time\n"
        "runs = pathlib.Path(__file__).with_name('runs')\n"
        "def test_fails_once():\n"
        "    runs.open('a').write('x')\n"
        "    assert runs.stat().st_size != 2\n"
        "def test_is_slow_once():\n"
        "    time.sleep(1.2 if runs.stat().st_size == 3 else 0)\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(now_and_then)]
    bad = run_python("tools/repeat.py", "--busy", "1", "3", *words)
    assert bad.returncode == 1, bad.stdout + bad.stderr
    assert re.search(r"run 2 failed: \S*::test_fails_once; (\S+)", bad.stdout), bad.stdout
    assert re.search(r"test_fails_once +3 +1 ", bad.stdout)
    assert re.search(r"test_is_slow_once +3 +0 .*too long", bad.stdout)
    assert "3 runs beside 1 busy processes of 2 tests: 1 runs failed, 1 tests took too long" in bad.stdout
    log = ROOT / re.findall(r"; (\S+run-2\.log)", bad.stdout)[0]
    assert "assert 2 != 2" in log.read_text()
    shutil.rmtree(log.parent)


def test_what_failed_is_printed_last_and_short(run_python: RunProgram, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    output = "\n".join(["step 7: wrong bytes", *["a" * 1000] * 100, "INNKEEPER_SEED=7"])
    report.write_text(
        "<testsuite><testcase name='good'/><testcase classname='S' name='bad'><failure message='Failed'/>"
        f"<system-out>{output}</system-out></testcase></testsuite>"
    )
    printed = run_python("tools/show_failures.py", report).stdout.splitlines()
    assert printed[0] == "---- S.bad"
    assert printed[1] == "step 7: wrong bytes"
    assert printed[-1] == "INNKEEPER_SEED=7"
    assert len(printed) < 30
    assert max(map(len, printed)) < 320


def check_skips(run_python: RunProgram, tmp_path: Path, *reasons: str) -> subprocess.CompletedProcess[str]:
    cases = "".join(
        f'<testcase classname="c" name="t{i}"><skipped message="{reason}"/></testcase>'
        for i, reason in enumerate(reasons)
    )
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    return run_python("tools/check_skips.py", "pytest", report)


def test_one_skip_more_than_is_allowed_fails_the_run(run_python: RunProgram, tmp_path: Path) -> None:
    slurm = "Slurm's daemons are not installed"
    assert check_skips(run_python, tmp_path, *[slurm] * 4).returncode == 0
    more = check_skips(run_python, tmp_path, *[slurm] * 5, "no reason that is listed")
    assert more.returncode == 1
    assert more.stdout.splitlines()[1:] == [f"  c::t4: {slurm}", "  c::t5: no reason that is listed"]


def test_the_skips_of_slurms_tests_are_all_allowed() -> None:
    text = (ROOT / "tests/cli/test_real_slurm.py").read_text()
    tests = len(re.findall(r"^def test_", text, re.MULTILINE))
    allowed = (ROOT / "tests/allowed_skips.txt").read_text()
    assert f"pytest {tests} Slurm's\n" in allowed


def test_a_script_that_hides_a_module_is_refused(run_python: RunProgram, tmp_path: Path) -> None:
    for name in ("bench/queue.py", "bench/fine.py", "bench/rich/__init__.py", "tests/cli/numpy.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("python/innkeeper/__init__.py", "python/innkeeper/queue.py"):  # The package's own.
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    script = (
        "import pathlib, sys\n"
        "from check_shadows import shadows, taken\n"
        "top, project = map(pathlib.Path, sys.argv[1:])\n"
        "print(*shadows(top, taken(project.read_text())), sep='\\n')\n"
    )
    done = run_python("-c", script, tmp_path, ROOT / "pyproject.toml", PYTHONPATH=str(ROOT / "tools"))
    assert done.returncode == 0, done.stderr
    hidden = [line.split(" hides the module ")[0] for line in done.stdout.splitlines()]
    assert hidden == ["bench/queue.py", "bench/rich", "tests/cli/numpy.py"]
