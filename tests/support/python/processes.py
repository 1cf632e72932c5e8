"""Fixtures that start processes. A test that uses one has the marker `process` (tiers.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from accelerators import here
from repository import ROOT

NODES = here("sim:2x16MiB,host:1GiB")
"""The nodes of the tests' own process, and by default of those that they start."""


class RunProgram(Protocol):
    """Runs a program to its end and captures its output.

    ``env`` is its whole environment. Without it the program has ours with the variables in ``settings`` and
    INNKEEPER_NODES, which is ``nodes``.
    """

    def __call__(
        self,
        *command: str | Path,
        nodes: str = NODES,
        timeout: float = 300,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        **settings: str,
    ) -> subprocess.CompletedProcess[str]: ...


StartProgram = Callable[..., subprocess.Popen[str]]


def run(
    *command: str | Path,
    nodes: str = NODES,
    timeout: float = 300,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """See RunProgram."""
    return subprocess.run(
        command,
        env=os.environ | {"INNKEEPER_NODES": nodes} | settings if env is None else env,
        cwd=cwd,
        stdin=subprocess.DEVNULL if input is None else None,
        input=input,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="session")
def processes() -> None:
    """Allows a test to start processes. Every fixture that starts one is built on this one."""


@pytest.fixture(scope="session")
def run_program(processes: None) -> RunProgram:
    """Runs a program to its end, from the repository's root."""
    return run


@pytest.fixture(scope="session")
def run_python(run_program: RunProgram) -> RunProgram:
    """Runs Python with the arguments to its end, from the repository's root."""

    def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return run_program(sys.executable, *arguments, **options)

    return python


@pytest.fixture
def start_program(processes: None) -> Iterator[StartProgram]:
    """Starts a program with pipes to it, from the repository's root; kills it when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str | Path, **options: Any) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        started.append(subprocess.Popen(command, text=True, **({"cwd": ROOT} | pipes | options)))
        return started[-1]

    yield start
    for process in started:
        with process:  # Closes its pipes.
            process.kill()


@pytest.fixture(scope="session")
def workers(processes: None) -> Callable[[str], Any]:
    """Gives the context of torch.multiprocessing for a way to start workers, such as ``spawn``."""
    from torch import multiprocessing

    return multiprocessing.get_context


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C++ compiler. A test that compiles anything uses it, and has the marker `build`."""
    return os.environ.get("CXX", "c++")


def state(pid: int) -> str:
    """State as ps shows it: "T" is stopped, "Z" has ended and is a zombie."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Whether the process runs or is stopped."""
    try:
        return state(pid) not in "ZX"
    except OSError:
        return False


def parent(pid: int) -> int:
    """Process number of the parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    """Waits; fails when the condition does not become true in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether the process exists and has not ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
