"""The long tests, in jobs: what `make verify`, `make nightly` and continuous integration run.

Usage:
    jobs.py verify [JOB...]    these jobs of the tier, or all
    jobs.py nightly [JOB...]   the same; notes date, commit and result in docs/nightly.md
    jobs.py ci                 make test, then jobs of verify until 57 minutes have passed

A job is a command that fails where something is wrong. Its output goes to build/reports/JOB.log and is
shown when it fails. A run ends with a table: passed, failed, or not run, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from process_group import process_group

TOP = Path(__file__).parent.parent
REPORTS = TOP / "build" / "reports"
NIGHTLY_PAGE = TOP / "docs" / "nightly.md"
RECORD = TOP / "build" / "verify.json"  # job -> record of its last run here
CI_LIMIT_S = 57 * 60
LAST = 60  # lines of a failed job's output
LEAST_LIMIT_S = 20 * 60
TESTS = "source tools/common.sh && source tools/run_tests.sh"
NARROWING = ("QUICK", "FAILED", "CHANGED", "PYTEST_ARGS")  # variables with which a job would try less


@dataclass(frozen=True)
class Job:
    """One command of a tier."""

    name: str
    what: str
    command: str
    minutes: float  # about how long it takes on two idle cores, without a compiler cache

    @property
    def limit_s(self) -> float:
        """A job that takes longer hangs, and has failed."""
        return max(LEAST_LIMIT_S, 3 * self.minutes * 60)


# Continuous integration begins with one of these rows, another each time; a row fits beside make test.
VERIFY_ROWS = [
    [
        Job("tidy", "clang-tidy, and clang's check of lock annotations", "tools/lint.sh tidy", 4),
        Job(
            "commands",
            "each command that a document names, in short",
            f"{TESTS} && build_core_tests && PYTEST_ARGS='-n 0' run_python_tests verify",
            4,
        ),
        Job("tsan", "core's stress tests under ThreadSanitizer", "tools/sanitize.sh tsan", 2),
    ],
    [
        Job("bench", "every benchmark in its short form", "QUICK=1 tools/bench.sh", 7),
        Job("cuda", "the CUDA part on a runtime without a GPU", "TIER=1 MODES=late tools/cuda.sh", 8),
        Job("fuzz", "what reads text, and calls to the engine, by libFuzzer", "tools/fuzz.sh 60", 4),
    ],
    [
        Job("asan", "core under AddressSanitizer and UBSan", "tools/sanitize.sh asan-ubsan", 6),
        Job("check-torch", "the torch layer against each PyTorch's headers", "tools/check_torch.sh", 8),
    ],
]
VERIFY = [job for row in VERIFY_ROWS for job in row]
NIGHTLY = [
    Job("compat", "models and scripts of libraries against the CPU", "tools/compat.sh", 60),
    Job("opinfo", "PyTorch's operator database for all dtypes", f"{TESTS} && run_python_tests nightly", 50),
    Job(
        "mutants",
        "lines taken out of core: does a test notice each?",
        "tools/mutate --jobs 2 --minutes 50",
        60,
    ),
    Job("torch-asan", "the torch layer's C++ tests under AddressSanitizer", "tools/asan.sh", 20),
    Job(
        "soak",
        "training for 50 minutes: no leak, no drift",
        "$VENV/bin/python bench/soak.py --minutes 50",
        55,
    ),
    Job("walks", "random programs, a million steps", "tools/walks.sh 1000000", 40),
    Job("root", "make test in an empty Debian", "tools/fresh.sh make test", 60),
    Job("install", "pip install . beside a compiler alone", "tools/fresh.sh tools/bare_install.sh", 30),
]


@dataclass
class Outcome:
    """The result of a job."""

    job: Job
    result: str  # passed, failed or not run
    seconds: float = 0
    why: str = ""


def git(*words: str) -> str:
    """Git's output, stripped; empty if it fails."""
    done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def run(job: Job, limit_s: float | None = None) -> Outcome:
    """Runs a job to its end or until a limit. At the limit given it did not run; at its own it failed."""
    log = REPORTS / f"{job.name}.log"
    about = f"about {job.minutes:g} min; {log.relative_to(TOP)}"
    print(f"\n== {job.name}: {job.what} ({about}) ==", flush=True)
    began = time.monotonic()
    allowed = min(job.limit_s, limit_s or job.limit_s)
    try:
        with (
            log.open("w") as out,
            process_group(
                ["bash", "-c", job.command],
                cwd=TOP,
                env={"VENV": ".venv"} | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
            ) as process,
        ):
            status = process.wait(allowed)
    except subprocess.TimeoutExpired:
        seconds = time.monotonic() - began
        if allowed < job.limit_s:
            return Outcome(job, "not run", seconds, "stopped when the time was over")
        return Outcome(
            job, "failed", seconds, f"took over {allowed / 60:.0f} min; see {log.relative_to(TOP)}"
        )
    seconds = time.monotonic() - began
    lines = log.read_text(errors="replace").splitlines()
    if status != 0:
        print("\n".join(lines[-LAST:]))
        return Outcome(job, "failed", seconds, f"exit status {status}; see {log.relative_to(TOP)}")
    skipped = next((line for line in lines if re.search(r"\bskipped: ", line)), "")
    if skipped:
        return Outcome(job, "not run", seconds, skipped)
    print("\n".join(lines[-3:]))
    part = next((line.removeprefix("part: ") for line in lines if line.startswith("part: ")), "")
    return Outcome(job, "passed", seconds, part)


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes, a line each."""
    rows = [
        f"  {each.job.name:12} {each.result:8} {each.seconds / 60:5.1f} min  {each.why}".rstrip()
        for each in outcomes
    ]
    return "\n".join(["", "job          result    took", *rows])


def recorded() -> dict[str, dict[str, str | float]]:
    """The records of the last runs in this checkout."""
    try:
        found = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: noted for name, noted in found.items() if isinstance(noted, dict)}


def record(outcome: Outcome) -> None:
    """Notes a run, for the order and the time of the next."""
    if outcome.result != "not run":
        noted = recorded()
        before = noted.get(outcome.job.name, {})
        # A run that failed may have ended long before its time.
        seconds = outcome.seconds if outcome.result == "passed" else before.get("seconds", 0)
        noted[outcome.job.name] = {
            "commit": git("rev-parse", "HEAD"),
            "seconds": seconds,
            "result": outcome.result,
        }
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(noted, indent=1))


def commits_since(commit: object) -> int:
    """How many commits HEAD is ahead of one; more than any number where it is not known here."""
    count = git("rev-list", "--count", f"{commit}..HEAD")
    return int(count) if count.isdigit() else sys.maxsize


def longest_ago_first(commits: int, noted: dict[str, dict[str, str | float]]) -> list[Job]:
    """The order in which continuous integration runs the jobs of VERIFY.

    Those that failed come first, then those that ran longest ago, by the number of commits since. Where
    nothing is noted of any, as in a fresh clone, the row comes first whose number is that of HEAD's commits,
    modulo.
    """
    first = commits % len(VERIFY_ROWS)
    rows = [*VERIFY_ROWS[first:], *VERIFY_ROWS[:first]]

    def age(job: Job) -> tuple[bool, int]:
        last = noted.get(job.name, {})
        return last.get("result") == "failed", commits_since(last.get("commit")) if last else sys.maxsize

    return sorted((job for row in rows for job in row), key=age, reverse=True)


def minutes_of(job: Job, noted: dict[str, dict[str, str | float]]) -> float:
    """How long a job will take: as the last time here, else as its line says."""
    seconds = noted.get(job.name, {}).get("seconds")
    if isinstance(seconds, int | float) and 0 < seconds <= job.limit_s:
        return seconds / 60
    return job.minutes


def chosen(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """The jobs of these names, or all."""
    known = {job.name: job for job in jobs}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no such job: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(jobs)


def note_nightly(outcome: Outcome) -> None:
    """Writes an outcome into its row of docs/nightly.md."""
    job = outcome.job
    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    # A job that takes hours in all runs in parts, and says of how much this one was.
    result = f"passed, {outcome.why}" if outcome.result == "passed" and outcome.why else outcome.result
    cells = (job.name, job.what, date.today(), commit, result, f"{outcome.seconds / 60:.0f}")
    row = f"| {' | '.join(map(str, cells))} |"
    text = NIGHTLY_PAGE.read_text()
    found = re.search(rf"^\| {re.escape(job.name)} \|.*$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{NIGHTLY_PAGE.relative_to(TOP)} has no row for {job.name}")
    NIGHTLY_PAGE.write_text(text.replace(found[0], row))


def run_all(jobs: Sequence[Job], note: Callable[[Outcome], None]) -> int:
    """Runs jobs in turn and records each result; returns the exit status."""
    outcomes = []
    for job in jobs:
        outcomes.append(run(job))
        note(outcomes[-1])
    print(table(outcomes))
    return int(any(each.result == "failed" for each in outcomes))


def ci() -> int:
    """Runs the jobs of continuous integration; returns the exit status."""
    began = time.monotonic()
    subprocess.run(["tools/setup.sh", "verify"], cwd=TOP, check=True)
    print(f"\nSet-up took {(time.monotonic() - began) / 60:.1f} min", flush=True)
    log = REPORTS / "test.log"
    with (
        log.open("w") as kept,
        process_group(
            ["make", "--no-print-directory", "test"],
            cwd=TOP,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            kept.write(line)
        passed = process.wait() == 0
    seconds = time.monotonic() - began
    print(f"\nmake test {'passed' if passed else 'FAILED'} in {seconds / 60:.1f} min", flush=True)

    noted = recorded()
    count = git("rev-list", "--count", "HEAD")
    outcomes = []
    for job in longest_ago_first(int(count) if count.isdigit() else 0, noted):
        left = CI_LIMIT_S - (time.monotonic() - began)
        if not passed:
            outcomes.append(Outcome(job, "not run", why="make test failed"))
        elif minutes_of(job, noted) * 60 > left:
            outcomes.append(Outcome(job, "not run", why=f"{max(left, 0) / 60:.0f} min were left"))
        else:
            outcomes.append(run(job, limit_s=left))
            record(outcomes[-1])
    print(table(outcomes))
    print("\nThe tests' own last lines:", flush=True)
    print("\n".join(log.read_text().splitlines()[-3:]))
    return int(not passed or any(each.result == "failed" for each in outcomes))


def main(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tier", choices=("verify", "nightly", "ci"))
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--known", action="store_true", help="only look whether there are such jobs")
    options = parser.parse_args(arguments)
    for name in NARROWING:
        os.environ.pop(name, None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # stops the running jobs, too
    known = VERIFY if options.tier == "verify" else NIGHTLY
    if options.known:
        chosen(known, options.jobs)
        return 0
    REPORTS.mkdir(parents=True, exist_ok=True)
    if options.tier == "ci":
        return ci()
    note = record if options.tier == "verify" else note_nightly
    return run_all(chosen(known, options.jobs), note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
