"""The program `innkeeper` on fake GPUs: tests drive the built binary, as a shell would.

It is the one of the package's build, as is the fake of NVML. INNKEEPER_PROGRAM and INNKEEPER_FAKE_LIBRARY
name other files. A test that uses the fixture `program` has the marker `program`, and one that uses `runners`
has `runner` (tiers.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from repository import ROOT
from tiers import at_end_of_call

BUILD = ROOT / "build" / "wheel"
PROGRAM = Path(os.environ.get("INNKEEPER_PROGRAM", BUILD / "src/cli/innkeeper"))
FAKE = Path(os.environ.get("INNKEEPER_FAKE_LIBRARY", BUILD / "tests/fake_nvml/libnvidia-ml.so.1"))
FAKE_AMD = FAKE.parents[1] / "fake_amdsmi" / "libamd_smi.so"

GPU = """
gpu GPU-{index}000aaaa-0000-0000-0000-000000000000
  bus 00000000:{index}1:00.0
  name NVIDIA H200
  memory 139G 512M {used}
  utilization {load} 0
  power 75 700
  temperature 30
  clocks 1700 2600
"""


Command = Callable[..., subprocess.CompletedProcess[str]]


def uuid(index: int) -> str:
    """Of the GPU with this number, counted from 0."""
    return f"GPU-{index + 1}000aaaa-0000-0000-0000-000000000000"


def gpus(count: int, extra: dict[int, str] | None = None) -> str:
    """A script of idle GPUs; `extra` adds lines to some."""
    text = "driver 550.54.15\n"
    for i in range(count):
        text += GPU.format(index=i + 1, used=0, load=0) + (extra or {}).get(i, "")
    return text


AMD = [f"GPU-{letter * 16}" for letter in "ab"]
"""UUIDs of the GPUs that `Machine.add_amd` adds."""


def visible(environment: str) -> list[str]:
    """The visible GPUs according to an environment as env prints it."""
    lines = (line.split("=", 1) for line in environment.splitlines() if "_VISIBLE_DEVICES=" in line)
    return sorted(f"{name.split('_')[0]} {value}" for name, value in lines)


def runners_below(directory: Path) -> list[int]:
    """The processes that run queues below this directory: runners and supervisors."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"runner\0{directory}/" in (process / "cmdline").read_text(errors="replace"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def had_runner(directory: Path) -> bool:
    """Whether a queue below this directory has a runner, or has had one."""
    return any(directory.rglob("runner.lock")) or bool(runners_below(directory))


def kill_runners(directory: Path) -> None:
    """Kills the processes that run queues below this directory: late ones make files again."""
    while found := runners_below(directory):
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def run_command(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs any program to its end, its output captured. ``options``: of subprocess.run."""
    given = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    if "stdout" in options:
        given |= {"capture_output": False, "stderr": subprocess.PIPE}
    return subprocess.run(words, **(given | options))


class Machine:
    """GPUs of a script, a lease directory of its own, and the program run on them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.leases = directory / "leases"
        self.script = directory / "gpus"
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA_", "INNKEEPER_")) and name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")
        } | {
            "INNKEEPER_NVML": str(FAKE),
            "INNKEEPER_FAKE_NVML": str(self.script),
            "INNKEEPER_LEASE_DIR": str(self.leases),
            "XDG_CACHE_HOME": str(directory / "cache"),
            "XDG_STATE_HOME": str(directory / "state"),  # Keeps tests away from the user's own queue.
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        self.started: list[subprocess.Popen[str]] = []
        self.set(gpus(2))

    def set(self, script: str) -> None:
        """Makes these GPUs the machine's."""
        fresh = self.directory / "fresh"
        fresh.write_text(script)
        fresh.rename(self.script)

    def add_amd(self) -> None:
        """Two GPUs of AMD's in addition to the others, with more memory."""
        gpu = "gpu {0}\n  bus 0000:0{1}:00.0\n  name AMD Instinct MI300X\n  memory 192G 0 1G\n"
        script = self.directory / "amd"
        script.write_text("".join(gpu.format(name[4:], name[4]) for name in AMD))
        self.env |= {"INNKEEPER_AMDSMI": str(FAKE_AMD), "INNKEEPER_FAKE_AMDSMI": str(script)}

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end, its output captured."""
        return self.command(PROGRAM, *words, env=self.env | (env or {}))

    def ok(self, *words: str, env: dict[str, str] | None = None) -> str:
        """Output of the program, which must succeed."""
        done = self.run(*words, env=env)
        assert done.returncode == 0, (words, done.returncode, done.stderr)
        assert done.stderr == "", done.stderr
        return done.stdout

    def command(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs any program there to its end, its output captured."""
        return run_command(*words, **({"env": self.env} | options))

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Starts the program; when the test ends, it is killed with the processes of its session."""
        process = subprocess.Popen(
            ["innkeeper", *words],
            executable=PROGRAM,
            text=True,
            start_new_session=True,
            **({"env": self.env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options),
        )
        self.started.append(process)
        return process

    def command_below(self, run: subprocess.Popen[str]) -> int:
        """Process number of the command that a started `run` has, once it has begun."""
        found: list[int] = []

        def begun() -> bool:
            below = [run.pid]
            for pid in below:
                with contextlib.suppress(OSError):
                    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                    below.extend(map(int, children))
            found[:] = below[2:3]  # The first two are run and the keeper.
            return bool(found) and b"innkeeper" not in Path(f"/proc/{found[0]}/cmdline").read_bytes()

        wait_until(begun)
        return found[0]

    def files(self) -> list[str]:
        """Lease files, dead ones too."""
        if not self.leases.is_dir():
            return []
        return sorted(path.name for path in self.leases.iterdir() if path.name != "alloc.lock")

    def held(self) -> list[dict]:  # type: ignore[type-arg]
        """Live leases."""
        return json.loads(self.ok("lease", "list", "--json"))["leases"]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for file in self.files():  # Ends the background processes that hold leases.
            (self.leases / file).unlink(missing_ok=True)
        kill_runners(self.directory)


class Jobs:
    """A queue of the test's own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.put_on(machine.directory)
        self.go = machine.directory / "go"
        self.until_go = f"while [ ! -e {self.go} ]; do sleep 0.02; done"
        """A job's script: it goes on when the test touches the file `go`."""
        machine.env["PATH"] = "/usr/bin:/bin"

    def put_on(self, disk: Path) -> None:
        """Its directory is there from now on."""
        self.directory = disk / "queue"
        self.machine.env["INNKEEPER_QUEUE_DIR"] = str(self.directory)

    def __call__(self, *words: str) -> str:
        return self.machine.ok("queue", *words)

    def add(self, *words: str) -> str:
        return self("add", *words).strip()

    def shell(self, script: str, *options: str) -> str:
        return self.add(*options, "--", "/bin/sh", "-c", script)

    def show(self, job: str) -> dict[str, Any]:
        return json.loads(self("show", "--json", job))[0]

    def log(self, job: str) -> str:
        return self("log", job)

    def wait(self, *jobs: str) -> int:
        return self.machine.run("queue", "wait", "--timeout", "60s", *jobs).returncode

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The queue's database by itself: committed and closed at the end."""
        connection = sqlite3.connect(self.directory / "queue.db")
        with contextlib.closing(connection), connection:
            yield connection

    def runner(self) -> int | None:
        """The runner's process, if there is one."""
        try:
            pid = int((self.directory / "runner.lock").read_text())
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return None if state == "Z" else pid

    def close(self) -> None:
        run = self.machine.run
        run("queue", "pause")
        for job in json.loads(self("list", "--all", "--json"))["jobs"]:
            if job["state"] == "running":
                run("queue", "resume", str(job["id"]))
                run("queue", "cancel", str(job["id"]))
        wait_until(lambda: self.runner() is None)


@pytest.fixture(scope="session")
def program() -> Path:
    """The program's file."""
    assert PROGRAM.exists(), f"{PROGRAM} is not built: make setup"
    return PROGRAM


@pytest.fixture(scope="session")
def command(program: Path) -> Command:
    """Runs any program to its end, its output captured."""
    return run_command


@pytest.fixture(scope="session")
def runners() -> None:
    """Allows a test to start the runner of a queue."""


def watch_for_runners(request: pytest.FixtureRequest, directory: Path) -> None:
    """The test fails if a queue below this directory has had a runner, and its markers do not say so."""

    def check() -> str:
        if request.node.get_closest_marker("runner") or not had_runner(directory):
            return ""
        return f"{request.node.nodeid} started the runner of a queue. Use the fixture `jobs` or `runners`."

    at_end_of_call(check)


@pytest.fixture
def machine(program: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Two idle GPUs."""
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="innkeeper-cli-", dir=parent))
    watch_for_runners(request, directory)
    made = Machine(directory)
    yield made
    made.close()
    shutil.rmtree(directory)


@pytest.fixture
def jobs(machine: Machine, runners: None) -> Iterator[Jobs]:
    """A queue on two idle GPUs."""
    made = Jobs(machine)
    yield made
    made.close()
