"""Runs a command many times in a row: the tests that failed, how often, and the longest time of each.

    python3 tools/repeat.py --busy 4 50 .venv/bin/python -m pytest -q tests/cli
    python3 tools/repeat.py --busy 4 50 build/wheel/tests/tests_one --gtest_filter=*Storm*

Runs of GoogleTest, ctest or pytest are counted test by test, any other command as one. Fails when a run
failed, or when a test once took more than ten times its median and more than a second. The output of failed
runs stays in build/repeat.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from junit import cases
from process_group import process_group

TOP = Path(__file__).resolve().parent.parent
TIMES_MEDIAN = 10
SECOND = 1.0  # below it a test's time says more of the machine than of the test
SHOWN = 10


@dataclass
class Record:
    """One test: seconds of each run, and the runs in which it failed."""

    seconds: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of all runs, in seconds."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """The longest run over the median."""
        return max(self.seconds) / max(self.median, 1e-3)

    @property
    def too_long(self) -> bool:
        """Whether a run was so long that it hung, or nearly."""
        return max(self.seconds) > SECOND and self.ratio > TIMES_MEDIAN


def with_report(command: Sequence[str], report: Path) -> list[str]:
    """The command, asked to write a JUnit report where it is a runner that can."""
    names = {Path(word).name for word in command}
    if "tests_one" in names:
        return [*command, f"--gtest_output=xml:{report}"]
    if "ctest" in names:
        return [*command, "--output-junit", str(report)]
    if "pytest" in names:
        return [*command, f"--junitxml={report}"]
    return list(command)


def tests_of(report: Path) -> Iterator[tuple[str, float, bool]]:
    """Name, seconds, and whether it failed, of each test in a report that was not skipped."""
    for case, outcome in cases(report):
        if outcome == "skipped":
            continue
        name = case.get("name", "")
        prefix = case.get("classname", "")
        test = name if prefix in ("", name) else f"{prefix}::{name}"
        yield test, float(case.get("time", 0)), outcome == "failed"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """That many processes beside, which do nothing but take time."""
    script = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    others = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def status_of(command: Sequence[str], output: IO[bytes]) -> int:
    """Runs a command to its end and returns its exit status; an interrupt kills all that it started."""
    with process_group(command, stdin=subprocess.DEVNULL, stdout=output) as process:
        return process.wait()


def run_once(command: Sequence[str], number: int, directory: Path, records: dict[str, Record]) -> bool:
    """One run, added to the records; whether it failed."""
    report, log = directory / "report.xml", directory / f"run-{number}.log"
    report.unlink(missing_ok=True)
    begin = time.perf_counter()
    with log.open("wb") as output:
        status = status_of(with_report(command, report), output)
    whole = time.perf_counter() - begin
    tests = list(tests_of(report)) if report.exists() else [(shlex.join(command), whole, status != 0)]
    for name, seconds, failed in tests:
        record = records.setdefault(name, Record())
        record.seconds.append(seconds)
        if failed:
            record.failed.append(number)
    if status == 0:
        log.unlink()
        return False
    names = ", ".join(name for name, _, failed in tests if failed) or f"status {status}"
    print(f"run {number} failed: {names}; {log.relative_to(TOP)}", flush=True)
    return True


def summary(records: dict[str, Record]) -> None:
    """The tests whose longest run is furthest from their median."""
    ordered = sorted(records.items(), key=lambda item: (not item[1].too_long, -item[1].ratio))
    width = max((len(name) for name, _ in ordered[:SHOWN]), default=0)
    print(f"{'':{width}}  {'runs':>5} {'failed':>6} {'median':>9} {'longest':>9}")
    for name, record in ordered[:SHOWN]:
        print(
            f"{name:{width}}  {len(record.seconds):5} {len(record.failed):6} {record.median:7.2f} s "
            f"{max(record.seconds):7.2f} s  {record.ratio:.1f} times{', too long' if record.too_long else ''}"
        )
    if len(ordered) > SHOWN:
        print(f"and {len(ordered) - SHOWN} tests more, all nearer to their medians")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="beside N processes that only take time"
    )
    parser.add_argument("times", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args(arguments)
    if args.times < 1 or not args.command:
        parser.error("how many times, and which command?")
    # Also where a shell has its background jobs ignore an interrupt.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    logs = TOP / "build" / "repeat"
    logs.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=logs))
    records: dict[str, Record] = {}
    done = bad_runs = 0
    with busy(args.busy):
        try:
            for number in range(1, args.times + 1):
                bad_runs += run_once(args.command, number, directory, records)
                done = number
        except KeyboardInterrupt:
            print("\nstopped", flush=True)
    (directory / "report.xml").unlink(missing_ok=True)
    if bad_runs == 0:
        shutil.rmtree(directory)
    if records:
        summary(records)
    too_long = sum(record.too_long for record in records.values())
    beside = f" beside {args.busy} busy processes" if args.busy else ""
    print(
        f"{done} runs{beside} of {len(records)} tests: {bad_runs} runs failed, {too_long} tests took too long"
    )
    return 0 if done == args.times and bad_runs == 0 and too_long == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
