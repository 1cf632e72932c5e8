"""The queue's program beside Debian's task-spooler in the same run: adds a second, processes of queued jobs.

Both get the same jobs: `true`, behind one that sleeps, so that they stay queued. They take turns,
three rounds each with a queue of its own; the best round counts, since other programs only make it worse.
task-spooler (`tsp`) is left out where it is not installed. Last, how long the program lists 100,000 jobs.
With --quick there are few of all, to see that it works.

    python bench/queue_program.py 300
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("INNKEEPER_PROGRAM", ROOT / "build/wheel/src/cli/innkeeper"))


def processes(marker: str) -> int:
    """How many processes have the marker in their environment."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            count += entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
    return count


def timed(words: list[str], env: dict[str, str]) -> float:
    """Seconds that a program takes."""
    begin = time.perf_counter()
    subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def measure(add: list[str], env: dict[str, str], jobs: int) -> tuple[float, int]:
    """Adds one long job and many that wait: how many a second, and how many processes more."""
    timed([*add, "sleep", "1000"], env)
    time.sleep(0.5)
    before = processes(env["BENCH_MARKER"])
    begin = time.perf_counter()
    for _ in range(jobs):
        timed([*add, "true"], env)
    seconds = time.perf_counter() - begin
    time.sleep(0.5)
    return jobs / seconds, processes(env["BENCH_MARKER"]) - before


def innkeeper(directory: Path, jobs: int) -> tuple[float, int, float]:
    """The queue, with one CPU slot."""
    env = dict(os.environ) | {"INNKEEPER_QUEUE_DIR": str(directory), "BENCH_MARKER": "innkeeper-bench-1"}
    program = [str(PROGRAM), "queue"]
    timed([*program, "slots", "1"], env)
    rate, more = measure([*program, "add", "--gpus=0", "--"], env, jobs)
    listing = timed([*program, "list", "--all"], env)
    timed([*program, "pause"], env)
    timed([*program, "cancel", "1"], env)
    timed([*program, "drain", "--timeout=30s"], env)
    return rate, more, listing


def task_spooler(directory: Path, jobs: int) -> tuple[float, int, float] | None:
    """Debian's task-spooler, with one slot."""
    program = shutil.which("tsp")
    if program is None:
        return None
    directory.mkdir()
    env = dict(os.environ) | {
        "TS_SOCKET": str(directory / "socket"),
        "TMPDIR": str(directory),
        "TS_MAXCONN": str(jobs + 100),
        "BENCH_MARKER": "innkeeper-bench-2",
    }
    rate, more = measure([program], env, jobs)
    listing = timed([program], env)
    running = subprocess.run([program, "-p", "0"], env=env, check=True, capture_output=True, text=True).stdout
    subprocess.run([program, "-K"], env=env, check=False)
    os.kill(int(running), signal.SIGTERM)  # the server ends, running jobs stay
    return rate, more, listing


def long_list(directory: Path, jobs: int) -> None:
    """The program's time to list that many jobs."""
    env = dict(os.environ) | {"INNKEEPER_QUEUE_DIR": str(directory)}
    program = [str(PROGRAM), "queue"]
    timed([*program, "pause"], env)
    array = f"--array=0-{jobs - 1}"
    timed([*program, "add", "--gpus=0", array, "--", "python", "train.py", "--seed", "{index}"], env)
    for words in (["list", "--last", "20"], ["list"], ["list", "--json"]):
        best = min(timed([*program, *words], env) for _ in range(5))
        print(f"innkeeper queue {' '.join(words):<15} {best * 1e3:8.1f} ms with {jobs:,} jobs")


def main() -> int:
    """Measures both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", type=int, nargs="?", default=400, help="that wait behind another (400)")
    parser.add_argument("--quick", action="store_true", help="few of all, to see that it works")
    args = parser.parse_args()
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM} is not built: make setup")
    jobs, rounds, listed = (5, 1, 1000) if args.quick else (args.jobs, 3, 100_000)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ours, theirs = [], []
        for i in range(rounds):
            ours.append(innkeeper(directory / f"queue{i}", jobs))
            theirs.append(task_spooler(directory / f"tsp{i}", jobs))
        for title, found in (("innkeeper", ours), ("task-spooler", theirs)):
            good = [each for each in found if each is not None]
            if not good:
                print(f"{title:<14} not installed (apt-get install task-spooler)")
                continue
            print(
                f"{title:<14} {max(each[0] for each in good):6.0f} adds/s   "
                f"{max(each[1] for each in good):5d} more processes for {jobs} queued jobs   "
                f"{min(each[2] for each in good) * 1e3:6.1f} ms to list them"
            )
        long_list(directory / "long", listed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
