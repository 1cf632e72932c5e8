"""tests/support/python/tiers.py: markers follow from fixtures, tiers select by them, and both checks fire.

A pytest of its own runs tests that are written here, in a directory that has the two plugins of ours alone.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import tiers
from processes import RunProgram, StartProgram
from repository import ROOT

CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests/support/python")!r})
pytest_plugins = ["tiers", "processes"]
"""
PYTEST = ("-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider")
RunTests = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run_tests(run_python: RunProgram, tmp_path: Path) -> RunTests:
    """Runs tests and a conftest.py, both given as text, by a pytest with these arguments."""

    def run(tests: str, *arguments: str, conftest: str = "", **settings: str) -> CompletedProcess[str]:
        (tmp_path / "conftest.py").write_text(CONFTEST + conftest)
        (tmp_path / "test_given.py").write_text("import os, subprocess, time, pytest\n" + tests)
        settings["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        return run_python(*PYTEST, *arguments, cwd=tmp_path, **settings)

    return run


def named(outcome: str, text: str) -> set[str]:
    """The tests for which pytest's summary gives this outcome."""
    return set(re.findall(rf"^{outcome} \S*test_given.py::(\S+)", text, re.MULTILINE))


WAYS = """
import multiprocessing, os, pty, subprocess, pytest

def forked(fork):
    pid = fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

def worker(method):
    process = multiprocessing.get_context(method).Process(target=print)
    process.start()
    process.join()

WAYS = {
    "run": lambda: subprocess.run(["true"]),
    "Popen": lambda: subprocess.Popen("true", shell=True).wait(),
    "system": lambda: os.system("true"),
    "fork": lambda: forked(os.fork),
    "forkpty": lambda: forked(lambda: pty.fork()[0]),
    "posix_spawn": lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0),
    "spawnlp": lambda: os.spawnlp(os.P_WAIT, "true", "true"),
    "worker_fork": lambda: worker("fork"),
    "worker_spawn": lambda: worker("spawn"),
}

@pytest.mark.parametrize("way", WAYS)
def test_bare(way):
    WAYS[way]()

@pytest.mark.parametrize("way", WAYS)
def test_allowed(processes, way):
    WAYS[way]()
"""


def test_a_test_without_a_marker_that_starts_a_process_fails(run_tests: RunTests) -> None:
    done = run_tests(WAYS)
    ways = re.findall(r'^    "(\w+)": lambda', WAYS, re.MULTILINE)
    assert named("FAILED", done.stdout) == {f"test_bare[{way}]" for way in ways}, done.stdout
    assert named("PASSED", done.stdout) == {f"test_allowed[{way}]" for way in ways}
    assert done.stdout.count("and has no marker that says so. Start it by run_python") >= len(ways)
    assert "test_bare[run] started a process (true)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"{len(ways)} failed, {len(ways)} passed")


def test_a_process_of_a_fixture_counts_too(run_tests: RunTests) -> None:
    done = run_tests(
        "@pytest.fixture\ndef before():\n    subprocess.run(['true'])\n"
        "@pytest.fixture\ndef after():\n    yield\n    subprocess.run(['true'])\n"
        "def test_before(before): pass\n"
        "def test_after(after): pass\n"
    )
    assert named("FAILED", done.stdout) == {"test_before"}
    assert named("ERROR", done.stdout) == {"test_after"}, "in its teardown"


def test_a_compiler_needs_its_own_marker(run_tests: RunTests) -> None:
    done = run_tests(
        "def test_hidden(run_program): run_program('c++', '--version')\n"
        "def test_told(run_program, compiler): run_program('c++', '--version')\n"
    )
    assert named("FAILED", done.stdout) == {"test_hidden"} and named("PASSED", done.stdout) == {"test_told"}
    assert "test_hidden ran c++. Use the fixture `compiler`" in done.stdout


def test_a_test_of_the_tier_check_that_takes_long_fails(run_tests: RunTests) -> None:
    done = run_tests(
        "def test_long(): time.sleep(0.5)\n"
        "def test_short(): pass\n"
        "@pytest.mark.slow\ndef test_marked(): time.sleep(0.5)\n"
        "def test_of_another_tier(processes): time.sleep(0.5)\n",
        conftest="import tiers\ntiers.LIMIT_S = 0.25\n",
    )
    assert named("FAILED", done.stdout) == {"test_long"}, done.stdout
    assert len(named("PASSED", done.stdout)) == 3
    said = r"test_long took 0\.[5-9] s of its own\. .* 0\.25 s: mark it slow, or make it faster"
    assert re.search(said, done.stdout)


@pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="the kernel keeps no times of threads"
)
def test_waiting_for_a_processor_does_not_count(run_tests: RunTests, start_program: StartProgram) -> None:
    """The test needs 0.8 s of a processor that it shares with three others, and has 2 s for it."""
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    for _ in range(3):
        start_program(sys.executable, "-c", bound + "while True: pass")
    done = run_tests(
        "def test_computes():\n"
        "    began, end = time.monotonic(), time.thread_time() + 0.8\n"
        "    while time.thread_time() < end: pass\n"
        "    print('elapsed', time.monotonic() - began)\n",
        conftest=f"import tiers\ntiers.LIMIT_S = 2\n{bound}",
    )
    assert named("PASSED", done.stdout) == {"test_computes"}, done.stdout
    (elapsed,) = re.findall(r"^elapsed (\S+)$", done.stdout, re.MULTILINE)
    assert float(elapsed) > 2, "nothing else was running"


MARKED = """
@pytest.fixture
def built(compiler): pass
@pytest.fixture(scope="module")
def browser(): pass
@pytest.fixture
def slurm(): pass
@pytest.fixture
def program(): pass
@pytest.fixture
def runners(): pass

def test_none(tmp_path): pass
def test_run_python(run_python): pass
def test_run_program(run_program): pass
def test_start_program(start_program): pass
def test_workers(workers): pass
def test_built(built, run_program): pass
def test_browser(browser): pass
def test_slurm(slurm, program, runners): pass
def test_program(program): pass
@pytest.mark.usefixtures("runners")
def test_runners(program): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.verify
def test_verify(run_program): pass
@pytest.mark.nightly
def test_nightly(run_program): pass
"""
SHOW_MARKERS = """
def pytest_collection_finish(session):
    for item in session.items:
        found = sorted(mark.name for mark in item.iter_markers() if mark.name != "usefixtures")
        print("marked", item.name, *found)
"""


def test_markers_follow_from_fixtures(run_tests: RunTests) -> None:
    done = run_tests(MARKED, "-s", "--tier=all", "--collect-only", conftest=SHOW_MARKERS)
    found = {line.split()[1]: line.split()[2:] for line in done.stdout.splitlines() if line[:7] == "marked "}
    assert found == {
        "test_none": [],
        "test_run_python": ["process"],
        "test_run_program": ["process"],
        "test_start_program": ["process"],
        "test_workers": ["process"],
        "test_built": ["build", "process"],
        "test_browser": ["browser"],
        "test_slurm": ["program", "runner", "slurm"],
        "test_program": ["program"],
        "test_runners": ["program", "runner"],
        "test_slow": ["slow"],
        "test_verify": ["process", "verify"],
        "test_nightly": ["nightly", "process"],
    }


SELECTED = {
    "--tier=check": {"none", "program"},
    "--tier=verify": {"verify"},
    "--tier=nightly": {"nightly"},
    "--tier=check -m 'not program'": {"none"},
    "-m 'verify or nightly'": {"verify", "nightly"},
    "test_given.py::test_nightly": {"nightly"},
}


@pytest.mark.parametrize("arguments", ["", "--tier=test", *SELECTED])
def test_a_tier_is_a_selection_of_markers(run_tests: RunTests, arguments: str) -> None:
    done = run_tests(MARKED, "--collect-only", *shlex.split(arguments))
    found = set(re.findall(r"::test_(\w+)$", done.stdout, re.MULTILINE))
    every = set(re.findall(r"^def test_(\w+)", MARKED, re.MULTILINE))
    assert found == SELECTED.get(arguments, every - {"verify", "nightly"}), done.stdout


def test_a_test_that_starts_a_runner_says_so(run_tests: RunTests) -> None:
    """A stand-in for the program; the runner's lock is the file that a runner leaves behind."""
    done = run_tests(
        "def queue(machine):\n"
        "    (machine.directory / 'queue').mkdir()\n"
        "    (machine.directory / 'queue/runner.lock').write_text('1')\n"
        "def test_bare(machine): queue(machine)\n"
        "def test_told(machine, runners): queue(machine)\n"
        "def test_without(machine): pass\n",
        conftest="from innkeeper_program import machine, program, runners\n",
        INNKEEPER_PROGRAM="/bin/true",
    )
    assert named("FAILED", done.stdout) == {"test_bare"}, done.stdout
    assert named("PASSED", done.stdout) == {"test_told", "test_without"}
    assert "test_bare started the runner of a queue" in done.stdout


def test_every_marker_is_registered(pytestconfig: pytest.Config) -> None:
    registered = {line.split(":")[0] for line in pytestconfig.getini("markers")}
    assert {*tiers.MARKER_OF.values(), *tiers.COSTLY} <= registered


def test_a_module_that_starts_a_process_when_it_is_imported_fails(run_tests: RunTests) -> None:
    """In each worker, for every selection of tests; a process that a library starts is permitted."""
    done = run_tests("subprocess.run(['true'])\ndef test_a(): pass\n")
    assert done.returncode != 0 and "starts a process (true) when it is imported" in done.stdout, done.stdout
    library = "exec(compile('subprocess.run([\\'true\\'])', '/elsewhere/library.py', 'exec'))"
    done = run_tests(f"{library}\ndef test_a(): pass\n")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("end", "status"), [("pass", 0), ("atexit.register(os.abort)", 3)])
def test_a_worker_that_crashes_at_its_end_fails_the_run(run_tests: RunTests, end: str, status: int) -> None:
    """Like a module whose destructors crash: all tests count as passed by then."""
    done = run_tests(f"import atexit\ndef test_a(): {end}\n", "-p", "xdist", "-n", "1")
    assert done.returncode == status, done.stdout + done.stderr
    assert "1 passed" in done.stdout and ("ended with -6" in done.stderr) == (status != 0)
