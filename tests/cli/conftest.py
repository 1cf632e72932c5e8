"""The program `innkeeper` on fake GPUs: tests drive the built binary, as a shell would.

INNKEEPER_PROGRAM and INNKEEPER_FAKE_LIBRARY name other files than those of build/dev.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from repository import ROOT

# A shell has what it runs in the background ignore it, and programs hand that on: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
BUILD = ROOT / "build" / "dev"
PROGRAM = Path(os.environ.get("INNKEEPER_PROGRAM", BUILD / "src/cli/innkeeper"))
FAKE = Path(os.environ.get("INNKEEPER_FAKE_LIBRARY", BUILD / "tests/fake_nvml/libnvidia-ml.so.1"))
FAKE_AMD = FAKE.parents[1] / "fake_amdsmi" / "libamd_smi.so"

CARD = """
card GPU-{index}000aaaa-0000-0000-0000-000000000000
  bus 00000000:{index}1:00.0
  name NVIDIA H200
  memory 139G 512M {used}
  utilization {load} 0
  power 75 700
  temperature 30
  clocks 1700 2600
"""


def uuid(index: int) -> str:
    """Of the card with this number, counted from 0."""
    return f"GPU-{index + 1}000aaaa-0000-0000-0000-000000000000"


def cards(count: int, extra: dict[int, str] | None = None) -> str:
    """A script of idle cards; `extra` adds lines to some."""
    text = "driver 550.54.15\n"
    for i in range(count):
        text += CARD.format(index=i + 1, used=0, load=0) + (extra or {}).get(i, "")
    return text


AMD = [f"GPU-{letter * 16}" for letter in "ab"]
"""UUIDs of the cards that `Machine.add_amd` adds."""


def visible(environment: str) -> list[str]:
    """What an environment, as env prints it, says of visible cards."""
    lines = (line.split("=", 1) for line in environment.splitlines() if "_VISIBLE_DEVICES=" in line)
    return sorted(f"{name.split('_')[0]} {value}" for name, value in lines)


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    """Fails when it does not become true in time."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def kill_runners(folder: Path) -> None:
    """Kills what runs queues below this folder: runners and supervisors that come late make files again."""
    while True:
        killed = 0
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"runner\0{folder}/" in (process / "cmdline").read_text(errors="replace"):
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
            except OSError:
                continue
        if killed == 0:
            return
        time.sleep(0.01)


class Machine:
    """GPUs of a script, a lease folder of its own, and the program run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases = folder / "leases"
        self.script = folder / "gpus"
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA_", "INNKEEPER_")) and name not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")
        } | {
            "INNKEEPER_NVML": str(FAKE),
            "INNKEEPER_FAKE_NVML": str(self.script),
            "INNKEEPER_LEASE_DIR": str(self.leases),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        self.started: list[subprocess.Popen[str]] = []
        self.set(cards(2))

    def set(self, script: str) -> None:
        """Makes these the machine's cards."""
        fresh = self.folder / "fresh"
        fresh.write_text(script)
        fresh.rename(self.script)

    def add_amd(self) -> None:
        """Two cards of AMD's beside the others, with more memory."""
        card = "card {0}\n  bus 0000:0{1}:00.0\n  name AMD Instinct MI300X\n  memory 192G 0 1G\n"
        script = self.folder / "amd"
        script.write_text("".join(card.format(name[4:], name[4]) for name in AMD))
        self.env |= {"INNKEEPER_AMDSMI": str(FAKE_AMD), "INNKEEPER_FAKE_AMDSMI": str(script)}

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end, its output captured."""
        return subprocess.run(
            [str(PROGRAM), *words],
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ok(self, *words: str, env: dict[str, str] | None = None) -> str:
        """What it prints when it succeeds."""
        done = self.run(*words, env=env)
        assert done.returncode == 0, (words, done.returncode, done.stderr)
        assert done.stderr == "", done.stderr
        return done.stdout

    def start(self, *words: str, **options: object) -> subprocess.Popen[str]:
        """Starts it; it is killed when the test ends, and what it started in its session."""
        process = subprocess.Popen(
            ["innkeeper", *words],
            executable=PROGRAM,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,  # type: ignore[call-overload]
        )
        self.started.append(process)
        return process

    def files(self) -> list[str]:
        """Lease files that are there, dead ones too."""
        if not self.leases.is_dir():
            return []
        return sorted(path.name for path in self.leases.iterdir() if path.name != "alloc.lock")

    def held(self) -> list[dict]:  # type: ignore[type-arg]
        """Live leases."""
        import json

        return json.loads(self.ok("lease", "list", "--json"))["leases"]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for file in self.files():  # ends what holds leases in the background
            (self.leases / file).unlink(missing_ok=True)
        kill_runners(self.folder)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Two idle cards."""
    assert PROGRAM.exists(), f"{PROGRAM} is not built: cmake --build --preset dev"
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="innkeeper-cli-", dir=parent))
    made = Machine(folder)
    yield made
    made.close()
    shutil.rmtree(folder)
