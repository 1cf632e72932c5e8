"""A crowd in the line for GPUs: the cost of waiting, its cost to other programs, and the order of service.

For each size of the crowd, on four simulated GPUs that are leased whole: the processors that all waiting
programs take together and the time of a `pick` beside them. After the GPUs come free: the longest time
between two grants, and the number of programs served long before an earlier request (more than twice as many
places as there are GPUs, since jobs that run at once end in any order).
With --quick a small crowd.

    python bench/waiting_line.py 10 100 300 1000
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(os.environ.get("INNKEEPER_PROGRAM", ROOT / "build/wheel/src/cli/innkeeper"))
GPUS = 4
LIMIT_S = 300


def processor_seconds(processes: list[subprocess.Popen[bytes]]) -> float:
    """Processor seconds that the processes have used so far."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for it."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what} did not happen within {LIMIT_S} s")
        time.sleep(0.05)


def measure(size: int, seconds: float, directory: Path) -> str:
    """One row of the table."""
    leases, order = directory / "leases", directory / "order"
    env = os.environ | {
        "INNKEEPER_LEASE_DIR": str(leases),
        "INNKEEPER_NVML": "/nowhere",
        "INNKEEPER_AMDSMI": "/nowhere",
        "INNKEEPER_NODES": f"sim:{GPUS}x64MiB,host:1GiB",
    }
    run = [str(PROGRAM), "run", "--exclusive"]
    holders = [subprocess.Popen([*run, "--", "sleep", "1000"], env=env) for _ in range(GPUS)]
    waiters: list[subprocess.Popen[bytes]] = []
    try:
        until(lambda: leases.is_dir() and len(list(leases.glob("l*"))) == GPUS, "the holders' start")
        for number in range(size):
            job = ["sh", "-c", f"echo {number} >> {order}"]
            waiters.append(subprocess.Popen([*run, "--wait", "--", *job], env=env, stderr=subprocess.DEVNULL))
            time.sleep(0.01)
        until(lambda: len(list(leases.glob("l*"))) == GPUS + size, "the crowd's lining up")
        time.sleep(1)
        before = processor_seconds(waiters)
        time.sleep(seconds)
        used = (processor_seconds(waiters) - before) / seconds
        picks = []
        for _ in range(7):
            begin = time.perf_counter()
            subprocess.run([PROGRAM, "pick", "--mem", "1MiB"], env=env, capture_output=True, check=False)
            picks.append(time.perf_counter() - begin)
        for holder in holders:
            holder.kill()
        gaps, last, served = [], time.monotonic(), 0
        while served < size:
            now = len(order.read_text().split()) if order.exists() else 0
            if now > served:
                gaps.append(time.monotonic() - last)
                served, last = now, time.monotonic()
            if time.monotonic() - last > LIMIT_S:
                sys.exit(f"{size - served} of {size} were not served within {LIMIT_S} s")
            time.sleep(0.005)
        numbers = [int(word) for word in order.read_text().split()]
        early = sum(number - place > 2 * GPUS for place, number in enumerate(numbers))
    finally:
        for process in [*waiters, *holders]:
            process.kill()
            process.wait()
    return (
        f"{size:>7} | {used:>10.3f} | {statistics.median(picks) * 1000:>8.0f} | {max(picks) * 1000:>6.0f} | "
        f"{max(gaps):>10.2f} | {early:>5}"
    )


def main() -> None:
    """Measures crowds of the sizes that the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=[10, 100, 300])
    parser.add_argument("--quick", action="store_true", help="a small crowd, for a second")
    args = parser.parse_args()
    sizes, seconds = ([20], 1.0) if args.quick else (args.sizes, 10.0)
    print("waiting | processors | pick, ms |   most | gap, s    | early")
    for size in sizes:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            print(measure(size, seconds, Path(directory)), flush=True)


if __name__ == "__main__":
    main()
