"""Tiers of tests: the markers that a test has, the tests that a run selects, and two checks of the markers.

A marker states a test's needs. It follows from the fixtures that the test uses (MARKER_OF). Only `network`,
`slow`, `verify` and `nightly` are written at the test. `--tier NAME` selects tests by TIERS.

Two checks hold for every test of tests/python and tests/cli:

1. A test that starts a process has a marker that states it (STARTERS).
   A test module that starts a process when it is imported fails. The check does not see processes that
   bypass Python's audit events, for example a libc call through ctypes.
2. The call of a test that the tier `check` selects takes at most LIMIT_S seconds. The time that the test's
   thread waited for a processor does not count, so that other programs on the machine fail no test.

A pytest-xdist worker that crashes when it ends fails the run, although all its tests have passed by then.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

MARKER_OF = {
    "processes": "process",
    "compiler": "build",
    "browser": "browser",
    "slurm": "slurm",
    "program": "program",
    "runners": "runner",
}
"""The marker of each test that uses a fixture, directly or through other fixtures."""

COSTLY = ("process", "build", "network", "browser", "slurm", "runner", "slow", "verify", "nightly")
CHECK, TEST = f"not ({' or '.join(COSTLY)})", "not (verify or nightly)"
TIERS = {
    "check": CHECK,
    "rest": f"{TEST} and not ({CHECK})",
    "test": TEST,
    "verify": "verify and not nightly",
    "nightly": "nightly",
    "all": "",
}
"""The tests of each tier, as an expression of markers. The tier `test` is `check` and `rest`."""

STARTERS = frozenset(("network", *MARKER_OF.values()))
"""The markers of tests that may start processes."""

LIMIT_S = 5.0
COMPILERS = frozenset(("c++", "cc", "clang", "clang++", "cmake", "g++", "gcc", "ninja"))
ELSEWHERE = [ROOT / "tests" / name for name in ("compat", "cuda", "gpu", "pytorch_own")]
"""Tests that scripts of their own run: for them both checks are off."""


def runs_elsewhere(path: Path) -> bool:
    """Whether a test file is one of ELSEWHERE."""
    return any(path.is_relative_to(directory) for directory in ELSEWHERE)


WORKER = "multiprocessing.Process.start"  # Our own audit event: Python has none for a spawned worker.
EVENTS = {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
EVENTS.add(WORKER)


@dataclass
class Running:
    """State of the running test. An interpreter runs one test at a time."""

    started: list[str] = field(default_factory=list)
    """The programs of the processes that the test started since the last check, in order."""
    checks: list[Callable[[], str]] = field(default_factory=list)
    """Checks of fixtures at the end of the call: each returns a complaint, or nothing."""
    seconds: float = 0.0
    """How long the call took, less the time that its thread waited for a processor."""


class Watch:
    """Records the processes that this interpreter starts."""

    def __init__(self) -> None:
        self.test: Running | None = None
        self.module: Path | None = None  # The test module that pytest imports now, or None.
        self.listens = False

    def listen(self) -> None:
        """Starts to record processes: an audit hook stays until the interpreter ends."""
        if self.listens:
            return
        self.listens = True
        start = multiprocessing.process.BaseProcess.start

        def announced(process: multiprocessing.process.BaseProcess) -> None:
            sys.audit(WORKER, process.name)
            start(process)

        multiprocessing.process.BaseProcess.start = announced
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Records the program that an audit event starts."""
        if event not in EVENTS:
            return
        if self.module is not None and is_test_code(asked_by(), self.module):
            raise RuntimeError(
                f"{self.module} starts a process ({program_of(event, arguments)}) when it is imported"
            )
        if self.test is not None:
            self.test.started.append(program_of(event, arguments))


WATCH = Watch()


def is_test_code(file: Path, module: Path) -> bool:
    """Whether a file is the test module or a helper."""
    return file == module or file.is_relative_to(ROOT / "tests")


def asked_by() -> Path:
    """The file of the innermost caller outside Python's library: other libraries may start `uname`."""
    frame, own = sys._getframe(2), Path(os.__file__).parent
    while frame.f_back is not None and Path(frame.f_code.co_filename).parent in (
        own,
        own / "multiprocessing",
    ):
        frame = frame.f_back
    return Path(frame.f_code.co_filename)


def program_of(event: str, arguments: tuple[Any, ...]) -> str:
    """The program that an audit event starts; of a fork, the event's name."""
    if event == "subprocess.Popen":
        words = arguments[1]
        return os.fsdecode(words if isinstance(words, str | bytes | os.PathLike) else next(iter(words)))
    if event in ("os.exec", "os.posix_spawn", "os.system"):
        return os.fsdecode(arguments[0])
    return os.fsdecode(arguments[1]) if event == "os.spawn" else event


def at_end_of_call(check: Callable[[], str]) -> None:
    """Registers a check of a fixture: the running test fails if it complains when the test's call has
    ended.
    """
    assert WATCH.test is not None
    WATCH.test.checks.append(check)


def waited_for_processor() -> float:
    """The seconds for which this thread was ready to run and waited for a processor; 0 where unknown."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def process_complaint(item: pytest.Item, test: Running, markers: set[str]) -> str:
    """Complaint about a test whose markers do not cover the processes that it started."""
    programs = sorted({Path(program).name for program in test.started})
    test.started.clear()
    if programs and not markers & STARTERS:
        return (
            f"{item.nodeid} started a process ({', '.join(programs)}) and has no marker that says so. Start "
            "it by run_python, run_program, start_program or workers (tests/support/python/processes.py), or "
            "by another fixture that is built on one of tiers.MARKER_OF: the marker follows from it."
        )
    built = sorted(COMPILERS.intersection(programs))
    if built and "build" not in markers:
        return (
            f"{item.nodeid} ran {', '.join(built)}. Use the fixture `compiler`: the marker follows from it."
        )
    return ""


def call_complaint(item: pytest.Item, test: Running, markers: set[str]) -> str:
    """Other complaints about a test whose call has ended."""
    if test.seconds > LIMIT_S and not markers.intersection(COSTLY):
        return (
            f"{item.nodeid} took {test.seconds:.1f} s of its own. A test of the tier `check` may take "
            f"{LIMIT_S:g} s: mark it slow, or make it faster."
        )
    return next(filter(None, (check() for check in test.checks)), "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=list(TIERS),
        help="select the tests of a tier; without it `test`, or `all` where -m or the id of a test selects",
    )


class WorkerEnds:
    """Checks the exit status of each pytest-xdist worker. Registered in the controlling process only."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        self.nodes.append(node)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)  # Outermost: pytest-xdist's own hook ends the workers.
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        yield
        for node in self.nodes:
            status = node.gateway._io.wait()
            if status:
                print(f"\n{node.gateway.id} ended with {status} after its tests", file=sys.stderr)
                session.exitstatus = session.exitstatus or pytest.ExitCode.INTERNAL_ERROR


def pytest_configure(config: pytest.Config) -> None:
    WATCH.listen()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerEnds())
    asked = config.option.markexpr
    by_name = asked or any("::" in argument for argument in config.args)
    tier = TIERS[config.getoption("tier") or ("all" if by_name else "test")]
    config.option.markexpr = " and ".join(f"({part})" for part in (tier, asked) if part)


@pytest.hookimpl(tryfirst=True)  # Runs before pytest selects by markers.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in set(getattr(item, "fixturenames", ())) & set(MARKER_OF):
            item.add_marker(MARKER_OF[name])


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    is_checked = isinstance(collector, pytest.Module) and not runs_elsewhere(collector.path)
    WATCH.module = collector.path if is_checked else None
    yield
    WATCH.module = None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    WATCH.test = Running()
    yield
    WATCH.test = None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    began, waited = time.perf_counter(), waited_for_processor()
    yield
    if WATCH.test is not None:
        WATCH.test.seconds = time.perf_counter() - began - (waited_for_processor() - waited)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = (yield).get_result()
    test = WATCH.test
    if test is None or not report.passed or call.when == "setup":
        return
    if runs_elsewhere(item.path):
        return
    markers = {marker.name for marker in item.iter_markers()}
    said = process_complaint(item, test, markers)
    if call.when == "call":
        said = said or call_complaint(item, test, markers)
    if said:
        report.outcome, report.longrepr = "failed", said
