"""Breaks the sources in one place at a time, runs the tests that should notice, and reports survivors.

Each mutant is tried in a scratch worktree of REV under build/mutants. Core's mutants are built into one test
program (tests_one), run until the first failure; a run that takes too long counts as noticed. Mutants of
src/torch need PyTorch and minutes each, so they are tried only with --torch. Mutants of code that runs only
on a GPU are tried by `make cuda` (tier one), only with --cuda. The report is build/mutants.md. A stopped run
of whole lists goes on if it is called again for the same commit. With --minutes it stops by itself, and the
next one, of any commit, begins with the mutants that were tried longest ago.

Exit status: 0 if every mutant of the lists is killed or listed as equivalent, and every list applies; else 1.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import IO

from mutants_tried import KILLED, NOT_APPLIED, NOT_BUILT, SURVIVED, Outcome, Tried
from mutation import Mutant, draw, read_lists

TOP = Path(__file__).parent.parent
SCRATCH = TOP / "build" / "mutants"
REPORT = TOP / "build" / "mutants.md"
CORE_DIRECTORIES = ["src/plan", "src/residency", "src/sim", "src/trace"]
TORCH_TESTS = [  # tests that most mutants fail first
    "tests/python/scripts/test_cuda_devices.py",
    "tests/python/device/test_mixed.py",
    "tests/python/device/test_mixed_modes.py",
    "tests/python/device/test_moved_copies.py",
    "tests/python/memory/test_overlap.py",
    "tests/python/autograd/test_known_bugs.py",
    "tests/python/device/test_known_bugs_tensors.py",
    "tests/python/memory/test_bits.py",
    "tests/python/memory/test_placement.py",
    "tests/python/device/test_managed_tensor.py",
    "tests/python/memory/test_recording.py",
    "tests/python/memory/test_work.py",
    "tests/python/device/test_opinfo.py",
]
KEPT_OUTPUT = 4 << 20
"""Bytes of the end of a command's output: enough to say which test noticed."""
IN_SHARDS = """
set -o pipefail
exec 3>&1
passed=0
while read -r status; do
  [ "$status" = 0 ] || exit "$status"
  passed=$((passed + 1))
done < <(
  for shard in 0 1 2 3; do
    { GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$shard "$@" 2>&1 | tail -c 1000000 >&3; echo $?; } &
  done)
[ $passed = 4 ]
"""
"""Divides core's tests among processes, until one fails: they mostly wait. Each prints at its end."""
# Marks of running mutants; noted before the start, so that a signal in between finds them.
MARKS: dict[str, None] = {}
VERDICTS = [KILLED, SURVIVED, NOT_BUILT, NOT_APPLIED]


def run(
    command: list[str], directory: Path, limit_s: float, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Runs a command, and ends its processes with it; (exit status, end of its output). 124: too long."""
    with tempfile.TemporaryFile() as output:  # a mutant may print gigabytes until its time is over
        status = run_to(output, command, directory, limit_s, env)
        output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT_OUTPUT))
        return status, output.read().decode(errors="replace")


def run_to(
    output: IO[bytes], command: list[str], directory: Path, limit_s: float, env: dict[str, str] | None
) -> int:
    """The same, with all output to a file; the exit status."""
    mark = secrets.token_hex(8)
    MARKS[mark] = None
    with subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, **(env or {}), "INNKEEPER_TEST_RUN": mark},
        stdout=output,
        stderr=subprocess.STDOUT,
        preexec_fn=os.setpgrp,  # keeps this session, and so this program's share of the processor
    ) as process:
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            end_group(process.pid)
            process.wait()
            end_marked(mark)
            del MARKS[mark]


def end_group(group: int) -> None:
    """Ends all processes of a group, if there is one."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def end_marked(mark: str) -> None:
    """Ends the processes of a run: those in sessions of their own outlive their group."""
    text = f"INNKEEPER_TEST_RUN={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if text in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def end_children() -> None:
    """Ends this process's children, also one that does not run its command yet, and so has no mark."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                os.kill(int(process.name), signal.SIGKILL)


def end(number: int, _frame: object) -> None:
    """Ends the running mutants, which may never end by themselves, and this program."""
    end_children()
    for mark in list(MARKS):
        end_marked(mark)
    os._exit(128 + number)


def must(command: list[str], directory: Path, env: dict[str, str] | None = None) -> str:
    """Runs a command that has to succeed."""
    status, output = run(command, directory, 7200, env)
    if status != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {status}\n{output[-4000:]}")
    return output


def failed_test(status: int, output: str) -> str:
    """The test that noticed, from a runner's output."""
    if status == 124:
        last = re.findall(r"\[ RUN      \] (\S+)", output)
        return f"{last[-1] if last else 'the tests'} (too long)"
    found = re.findall(r"\[  FAILED  \] (\S+)", output) or re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
    if found:
        return found[0].rstrip(",")
    last = re.findall(r"\[ RUN      \] (\S+)", output)
    return f"{last[-1]} (aborted)" if last else "aborted"


class Tree:
    """A scratch worktree, built once; mutants are tried in it one after another."""

    def __init__(self, index: int, base: str, kind: str, python: str) -> None:
        self.path = SCRATCH / (f"tree-{index}" if kind == "core" else f"tree-{index}-{kind}")
        self.kind = kind
        self.python = python
        if self.path.exists():
            must(["git", "checkout", "--quiet", "--force", "--detach", base], self.path)
        else:
            must(["git", "worktree", "add", "--quiet", "--force", "--detach", str(self.path), base], TOP)
        if kind != "cuda":
            preset = "torch" if kind == "torch" else "dev"
            more = [f"-DPython3_EXECUTABLE={python}"] if kind == "torch" else []
            # A mutant may well leave a variable unused: no reason not to try it.
            options = ["-DINNKEEPER_WERROR=OFF", "-DINNKEEPER_UNITY=OFF"]  # one file changes at a time
            must(["cmake", "--preset", preset, *options, *more], self.path)
        self.limit_s = 3600.0
        status, output = self.build(os.cpu_count() or 1)  # all targets; no other build runs yet
        if status != 0:
            raise SystemExit(f"the base does not build:\n{output[-4000:]}")
        start = time.monotonic()
        status, output = self.test()
        if status != 0:
            raise SystemExit(f"the base fails {failed_test(status, output)}:\n{output[-4000:]}")
        self.baseline_s = time.monotonic() - start
        self.limit_s = 30 + 3 * self.baseline_s

    def build(self, cores: int = 1) -> tuple[int, str]:
        """Builds the targets that the tests need."""
        jobs = [f"-j{cores}", "--", "--quiet"]
        if self.kind == "cuda":
            settings = {"BUILD_ONLY": "1", "WERROR": "OFF", "JOBS": str(cores)}
            return run(["tools/cuda.sh"], self.path, 7200, settings)
        if self.kind == "core":
            return run(["cmake", "--build", "build/dev", "--target", "tests_one", *jobs], self.path, 1800)
        status, output = run(
            ["cmake", "--build", "build/torch", "--target", "innkeeper_package", *jobs], self.path, 7200
        )
        if status != 0:
            return status, output
        return run(
            ["cmake", "--install", "build/torch", "--component", "python", "--prefix", "build/torch/package"],
            self.path,
            600,
        )

    def test(self) -> tuple[int, str]:
        """Runs the tests until one fails."""
        if self.kind == "cuda":
            tier_one = {"TIER": "1", "MODES": "late", "PYTEST_ARGS": "-x", "WERROR": "OFF", "JOBS": "1"}
            return run(["tools/cuda.sh"], self.path, self.limit_s, tier_one)
        if self.kind == "core":
            tests = ["build/dev/tests/tests_one", "--gtest_fail_fast"]
            return run(["bash", "-c", IN_SHARDS, "shards", *tests], self.path, self.limit_s)
        env = {"PYTHONPATH": str(self.path / "build/torch/package")}
        return run([self.python, "-m", "pytest", "-x", "-q", *TORCH_TESTS], self.path, self.limit_s, env)

    def attempt(self, mutant: Mutant) -> Outcome:
        """Applies a mutant, builds, tests, and takes it back."""
        file = self.path / mutant.file
        original = file.read_text()
        try:
            changed = mutant.apply(original)
        except ValueError:
            return Outcome(mutant, NOT_APPLIED)
        start = time.monotonic()
        try:
            file.write_text(changed)
            status, _ = self.build()
            if status != 0:
                return Outcome(mutant, NOT_BUILT)
            status, output = self.test()
        finally:
            file.write_text(original)
        seconds = time.monotonic() - start
        if status == 0:
            return Outcome(mutant, SURVIVED, seconds=seconds)
        return Outcome(mutant, KILLED, failed_test(status, output), seconds)


def change_of(mutant: Mutant) -> str:
    """The change as text for the report."""
    old = [f"-{line}" for line in mutant.old.rstrip("\n").splitlines()]
    new = [f"+{line}" for line in mutant.new.rstrip("\n").splitlines()]
    return "\n".join(["```diff", *old, *new, "```"])


def write_report(outcomes: list[Outcome], command: str, base: str, seed: int | None) -> None:
    """build/mutants.md, written again after each mutant so that a run may be stopped."""
    count = {verdict: sum(o.verdict == verdict for o in outcomes) for verdict in VERDICTS}
    lines = ["# Mutants", "", f"`{command}` at {base}" + (f", seed {seed}" if seed is not None else ""), ""]
    lines += [
        f"{len(outcomes)} tried: " + ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS) + ".",
        "",
    ]
    # A randomly drawn mutant that does not compile tells nothing.
    expected = {KILLED} if seed is None else {KILLED, NOT_BUILT}
    survivors = [o for o in outcomes if o.verdict not in expected]
    if survivors:
        lines += ["## Survivors", ""]
    for outcome in survivors:
        mutant = outcome.mutant
        verdict = "equivalent" if outcome.verdict == SURVIVED and mutant.equivalent else outcome.verdict
        lines += [
            f"**{mutant.name}** ({verdict}). {mutant.equivalent or mutant.why}",
            "",
            change_of(mutant),
            "",
        ]
    lines += ["## Killed", "", "| mutant | file | killed by | seconds |", "|---|---|---|---|"]
    for outcome in outcomes:
        if outcome.verdict == KILLED:
            name, file = outcome.mutant.name, outcome.mutant.file
            lines.append(f"| {name} | {file} | {outcome.by} | {outcome.seconds:.0f} |")
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("\n".join(lines) + "\n")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/mutate", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the lists and check that they apply, or what --random draws",
    )
    parser.add_argument(
        "--random", type=int, metavar="N", default=0, help="try N random ones instead of the lists"
    )
    parser.add_argument("--seed", type=int, help="for --random; a new one is drawn and printed otherwise")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="worktrees at a time (default 1)")
    parser.add_argument(
        "--only", default="", metavar="PATTERN", help="a regular expression that names must match"
    )
    parser.add_argument(
        "--base", default="HEAD", metavar="REV", help="the commit that is broken (default HEAD)"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no mutant after so long: for runs in parts"
    )
    parser.add_argument("--torch", action="store_true", help="the mutants of src/torch instead of core's")
    parser.add_argument("--cuda", action="store_true", help="the mutants of what only a GPU runs")
    parser.add_argument(
        "--python", default=sys.executable, help="with --torch: a Python that has PyTorch and pytest"
    )
    return parser.parse_args()


def kind_of(mutant: Mutant) -> str:
    """The kind of tests that try a listed mutant."""
    if mutant.name.startswith("cuda/"):
        return "cuda"
    return "torch" if mutant.file.startswith("src/torch") else "core"


def kind_wanted(args: argparse.Namespace) -> str:
    """The kind of mutants that the command line selects."""
    return "cuda" if args.cuda else "torch" if args.torch else "core"


def resumes(args: argparse.Namespace) -> bool:
    """Whether a run that was stopped goes on: all that the lists have of a kind takes hours."""
    return not args.random and not args.only


def choose(args: argparse.Namespace, base_text: Path) -> list[Mutant]:
    """The mutants to try of the tree at `base_text`, before those that do not compile are left out."""
    if args.random:
        directories = ["src/torch"] if args.torch else CORE_DIRECTORIES
        mutants = draw(base_text, directories, args.seed)
    else:
        lists = read_lists(base_text / "tools" / "mutants")
        mutants = [m for m in lists if kind_of(m) == kind_wanted(args)]
    return [mutant for mutant in mutants if re.search(args.only, mutant.name)]


def print_list(args: argparse.Namespace) -> int:
    """Prints every list, or the drawn mutants; returns 1 if one does not apply to the present sources."""
    status = 0
    drawn = choose(args, TOP)[: args.random] if args.random else read_lists(TOP / "tools" / "mutants")
    for mutant in drawn:
        if not re.search(args.only, mutant.name):
            continue
        try:
            mutant.apply((TOP / mutant.file).read_text())
            note = f"equivalent: {mutant.equivalent}" if mutant.equivalent else mutant.why
        except ValueError as error:
            note = f"DOES NOT APPLY ({error})"
            status = 1
        print(f"{mutant.name:36} {mutant.file}: {note}")
    return status


def main() -> int:
    """Tries the mutants; returns the exit status."""
    args = parse()
    until = time.monotonic() + 60 * args.minutes
    if args.random and args.seed is None:
        args.seed = secrets.randbelow(2**32)
    if args.list:
        return print_list(args)
    if shutil.which("ccache") is None:
        print("without ccache every mutant costs much more", file=sys.stderr)
    os.nice(10)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    base = must(["git", "rev-parse", "--short", args.base], TOP).strip()
    if args.random:
        print(f"seed {args.seed}", flush=True)
    trees: Queue[Tree] = Queue()
    for index in range(args.jobs):
        trees.put(Tree(index, base, kind_wanted(args), args.python))
    first = trees.queue[0]
    print(f"the base passes in {first.baseline_s:.0f} s; a mutant may take {first.limit_s:.0f} s", flush=True)
    mutants = choose(args, first.path)
    tried = Tried(TOP / "build" / f"mutants-{kind_wanted(args)}.json")
    outcomes = tried.at(base, mutants) if resumes(args) else []
    if outcomes:
        print(f"{len(outcomes)} of {len(mutants)} were tried by an earlier run of {base}", flush=True)
    done = {outcome.mutant.name for outcome in outcomes}
    left = [mutant for mutant in mutants if mutant.name not in done]
    if args.minutes != math.inf:
        left = tried.longest_ago_first(base, left)
    wanted = args.random or len(mutants)
    command = " ".join(["tools/mutate", *sys.argv[1:]])

    def attempt(mutant: Mutant) -> None:
        # Another is drawn in the place of one that is no program.
        if sum(o.verdict != NOT_BUILT or not args.random for o in outcomes) >= wanted:
            return
        if time.monotonic() > until:
            return
        tree = trees.get()
        try:
            outcome = tree.attempt(mutant)
        finally:
            trees.put(tree)
        outcomes.append(outcome)
        print(f"{outcome.verdict:16} {mutant.name}: {outcome.by}", flush=True)
        write_report(outcomes, command, base, args.seed if args.random else None)
        if resumes(args):
            tried.add(base, outcome)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(attempt, left))
    if resumes(args) and len(outcomes) == len(mutants):
        tried.begin_anew()
    killed = sum(outcome.verdict == KILLED for outcome in outcomes)
    print(f"{killed} of {len(outcomes)} killed; {REPORT.relative_to(TOP)} says by whom")
    if len(outcomes) < len(mutants) and not args.random:
        print(f"part: {len(outcomes)} of {len(mutants)}")
    return 1 if any(outcome.bad for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
