"""The queue's program beside Debian's task-spooler in the same run: adds a second, processes of queued jobs.

Both get the same jobs: `true`, behind one that sleeps, so that they stay queued. task-spooler (`tsp`) is left
out where it is not installed.

    python bench/queue.py [JOBS]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("INNKEEPER_PROGRAM", ROOT / "build/release/src/cli/innkeeper"))


def processes(marker: str) -> int:
    """How many processes have the marker in their environment."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            count += entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
    return count


def measure(name: str, add: list[str], env: dict[str, str], jobs: int, more: Callable[[], None]) -> None:
    """Adds one long job and many that wait, and prints what it took."""

    def run(*words: str) -> None:
        subprocess.run([*add, *words], env=env, check=True, stdout=subprocess.DEVNULL)

    run("sleep", "1000")
    time.sleep(0.5)
    before = processes(env["BENCH_MARKER"])
    begin = time.perf_counter()
    for _ in range(jobs):
        run("true")
    seconds = time.perf_counter() - begin
    time.sleep(0.5)
    resident = processes(env["BENCH_MARKER"]) - before
    print(f"{name:<14} {jobs / seconds:8.0f} adds/s   {resident:5d} more processes for {jobs} queued jobs")
    more()


def innkeeper(folder: Path, jobs: int) -> None:
    """The queue, with one CPU slot."""
    env = dict(os.environ) | {
        "INNKEEPER_QUEUE_DIR": str(folder / "queue"),
        "BENCH_MARKER": "innkeeper-bench-1",
    }
    program = [str(PROGRAM), "queue"]

    def call(*words: str) -> None:
        subprocess.run([*program, *words], env=env, check=True, stdout=subprocess.DEVNULL)

    def listing() -> None:
        begin = time.perf_counter()
        call("list", "--all")
        print(f"{'':<14} {(time.perf_counter() - begin) * 1e3:8.1f} ms for list --all")

    call("slots", "1")
    measure("innkeeper", [*program, "add", "--gpus=0", "--"], env, jobs, listing)
    call("pause")
    call("cancel", "1")
    call("drain", "--timeout=30s")


def task_spooler(folder: Path, jobs: int) -> None:
    """Debian's task-spooler, with one slot."""
    program = shutil.which("tsp") or shutil.which("ts")
    if program is None:
        print("task-spooler   not installed (apt-get install task-spooler)")
        return
    env = dict(os.environ) | {
        "TS_SOCKET": str(folder / "socket"),
        "TMPDIR": str(folder),
        "TS_MAXCONN": str(jobs + 100),
        "BENCH_MARKER": "innkeeper-bench-2",
    }

    def listing() -> None:
        begin = time.perf_counter()
        subprocess.run([program], env=env, check=True, stdout=subprocess.DEVNULL)
        print(f"{'':<14} {(time.perf_counter() - begin) * 1e3:8.1f} ms for its list")

    measure("task-spooler", [program], env, jobs, listing)
    subprocess.run([program, "-K"], env=env, check=False)


def main() -> int:
    """Measures both."""
    if not PROGRAM.exists():
        print(f"{PROGRAM} is not built: cmake --build --preset release")
        return 0
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        innkeeper(folder, jobs)
        task_spooler(folder, jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
