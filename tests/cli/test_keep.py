"""run: the lease stays while a process of its command lives; for the user nothing else changes."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Machine, uuid, wait_until
from processes import alive, state

LAUNCHER = """
import os, subprocess, sys, time
{start}
print(*workers, os.getpid(), os.getppid(), flush=True)
time.sleep(60)
"""
PLAIN = """
workers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid for _ in range(2)]
"""
HIDDEN = """
out, into = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(into, str(os.getpid()).encode())
        os.closerange(0, 4096)
        os.execve("/bin/sleep", ["sleep", "60"], {})
    os._exit(0)
os.wait()
workers = [int(os.read(out, 100))]
"""


class Job:
    """A launcher below `run`, its workers, and the keeper between them."""

    def __init__(self, machine: Machine, start: str) -> None:
        self.process = machine.start("run", "--", sys.executable, "-c", LAUNCHER.format(start=start))
        assert self.process.stdout is not None
        *self.workers, self.launcher, self.keeper = map(int, self.process.stdout.readline().split())
        self.run = self.process.pid

    def close(self) -> None:
        for pid in [*self.workers, self.launcher, self.keeper]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(machine: Machine) -> Iterator[Callable[[str], Job]]:
    """Starts a job, which is killed when the test ends."""
    jobs: list[Job] = []

    def begin(how: str) -> Job:
        jobs.append(Job(machine, how))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


@pytest.mark.parametrize("how", [PLAIN, HIDDEN], ids=["subprocess", "hidden"])
@pytest.mark.parametrize(
    "killed",
    ["launcher", "run", "keeper", "launcher run", "launcher keeper", "run launcher", "keeper launcher"],
)
def test_the_lease_stays_while_a_worker_lives(
    machine: Machine, start: Callable[[str], Job], how: str, killed: str
):
    job = start(how)
    gone = [getattr(job, name) for name in killed.split()]
    for pid in gone:
        with contextlib.suppress(ProcessLookupError):  # The keeper kills the launcher after `run` was killed.
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, gone)))
    if "run" in killed:  # Like a kill of the command itself.
        wait_until(lambda: not alive(job.launcher))
    assert all(map(alive, job.workers))
    time.sleep(0.3)
    assert [lease["claims"][0]["uuid"] for lease in machine.held()] == [uuid(0)]
    assert machine.run("pick", "-n", "2").returncode != 0
    for pid in job.workers:
        os.kill(pid, signal.SIGKILL)
    if killed == "keeper":  # The launcher goes on.
        assert len(machine.held()) == 1
        os.kill(job.launcher, signal.SIGKILL)
    wait_until(lambda: machine.held() == [])
    wait_until(lambda: machine.files() == [])
    assert machine.ok("pick", "-n", "2") == f"{uuid(0)},{uuid(1)}\n"


@pytest.mark.parametrize("pause", [0.002, 0.02, 0.1])
def test_between_two_kills_there_is_time(machine: Machine, start: Callable[[str], Job], pause: float):
    """Case `kill -9 LAUNCHER KEEPER`: `run`, informed of the launcher's end, waits for the second."""
    job = start(HIDDEN)
    os.kill(job.launcher, signal.SIGKILL)
    wait_until(lambda: not alive(job.launcher))
    time.sleep(pause)
    os.kill(job.keeper, signal.SIGKILL)
    time.sleep(0.5)
    assert [lease["claims"][0]["uuid"] for lease in machine.held()] == [uuid(0)]
    assert alive(job.run)
    os.kill(job.workers[0], signal.SIGKILL)
    job.process.wait(10)
    assert job.process.returncode == -signal.SIGKILL, "as the launcher's"
    assert machine.held() == []


def test_the_lease_names_its_keeper(machine: Machine, start: Callable[[str], Job]):
    job = start(PLAIN)
    assert machine.held()[0]["pid"] == job.run
    os.kill(job.launcher, signal.SIGKILL)
    job.process.wait(10)
    assert job.process.returncode == -signal.SIGKILL
    wait_until(lambda: machine.held()[0]["pid"] == job.keeper)
    assert "gpu-lease" in machine.held()[0]["command"] and "subprocess" in machine.held()[0]["command"]


def test_the_status_is_the_commands_without_a_keeper(machine: Machine):
    for end, status in [("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM)]:
        process = machine.start(
            "run", "--", "sh", "-c", f"echo $PPID; read line; {end}", stdin=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdin is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.wait(10) == status
        assert machine.held() == []


COUNTER = """
import os, signal, sys, time
count = {number: 0 for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGRTMIN + 3)}
def more(number, frame):
    count[number] += 1
for number in count:
    signal.signal(number, more)
print(os.getpid(), os.getppid(), flush=True)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    time.sleep(0.01)
print(*count.values())
"""


@pytest.mark.parametrize("session", [True, False])
def test_each_signal_comes_once(machine: Machine, session: bool):
    """Sent to run alone, or to the process group, of which the command is a member."""
    process = subprocess.Popen(
        [PROGRAM, "run", "--", sys.executable, "-c", COUNTER, "1.5"],
        env=machine.env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=os.setsid if session else os.setpgrp,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGTERM)
    os.killpg(process.pid, signal.SIGUSR1)
    os.kill(process.pid, signal.SIGRTMIN + 3)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGTERM)
    assert process.stdout.readline().split() == ["3", "1", "0", "1"]
    assert process.wait(10) == 0


def test_a_command_that_left_the_group_gets_what_that_gets(machine: Machine):
    leave = COUNTER.replace("print(os.getpid()", "os.setpgrp()\nprint(os.getpid()")
    process = machine.start("run", "--", sys.executable, "-c", leave, "0.7")
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGTERM)
    assert process.stdout.readline().split() == ["1", "0", "0", "0"]


def test_a_stop_and_what_ends_it_reach_the_command(machine: Machine):
    process = machine.start("run", "--", "sh", "-c", "echo $$; read line; exit 3", stdin=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    command = int(process.stdout.readline())
    for _ in range(2):
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state(command) == "T")
        assert state(process.pid) == "T"
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: state(command) != "T" and state(process.pid) != "T")
    os.kill(command, signal.SIGSTOP)  # The other direction.
    wait_until(lambda: state(process.pid) == "T")
    os.kill(command, signal.SIGCONT)
    wait_until(lambda: state(process.pid) != "T")
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.wait(10) == 3


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, machine: Machine) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            env = machine.env | {"PS1": "$ ", "TERM": "dumb", "PATH": f"{PROGRAM.parent}:/usr/bin:/bin"}
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], env)
        self.seen = ""
        self.expect(r"\$ $")

    def expect(self, pattern: str, seconds: float = 20) -> str:
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < until, (pattern, self.seen)
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096).decode().replace("\r", "")
        text = self.seen[: found.end()]
        self.seen = self.seen[found.end() :]
        return text

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(machine: Machine) -> Iterator[Terminal]:
    made = Terminal(machine)
    yield made
    made.close()


READER = r"""
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\n"))
print("ready", flush=True)
for line in sys.stdin:
    print("read", line.strip(), flush=True)
    if line.strip() == "end": sys.exit(5)
"""


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_a_stop_right_after_a_continue_holds(machine: Machine, terminal: Terminal):
    """Each signal cancels a pending one of the other kind; `run` and the keeper tell them apart."""
    terminal.type("innkeeper run -- sleep 60\n")
    wait_until(lambda: len(machine.held()) == 1)
    run = machine.held()[0]["pid"]
    keeper = int(children(run))
    wait_until(lambda: children(keeper))
    command = int(children(keeper))
    os.killpg(run, signal.SIGTSTP)
    wait_until(lambda: state(run) == state(command) == "T")
    for attempt in range(80):
        os.killpg(run, signal.SIGCONT)
        time.sleep(attempt % 20 * 0.0001)
        os.killpg(run, signal.SIGTSTP)
        time.sleep(0.01)
        wait_until(lambda: state(run) == state(command) == "T")
    os.killpg(run, signal.SIGKILL)


def test_a_terminals_keys_and_job_control(machine: Machine, terminal: Terminal):
    script = machine.directory / "reader.py"
    script.write_text(READER)
    terminal.type(f"innkeeper run -- {sys.executable} {script}\n")
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect(r"interrupted")
    terminal.type("one\n")
    terminal.expect("read one")
    terminal.type("\x1a")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ $")
    assert len(machine.held()) == 1
    terminal.type("fg\n")
    terminal.expect(r"reader.py")
    terminal.type("two\n")
    text = terminal.expect("read two")
    assert "interrupted" not in text
    terminal.type("\x1a")
    terminal.expect(r"\$ $")
    # The program reads, so it stops again; the shell reports that before its next prompt.
    terminal.type("bg\n")
    terminal.expect(r"\$ $")
    time.sleep(0.5)
    terminal.type("\n")
    terminal.expect(r"Stopped")
    terminal.expect(r"\$ $")
    terminal.type("fg\n")
    terminal.expect(r"reader.py")
    terminal.type("end\n")
    terminal.expect("read end")
    terminal.type("echo status $?\n")
    terminal.expect("status 5")
    assert machine.held() == []


def test_an_interrupt_ends_a_shells_loop(terminal: Terminal):
    """A shell ends its script if the command ended by the signal and the shell got the signal itself."""
    terminal.type("bash -c 'for i in 1 2 3; do echo turn $i; innkeeper run -- sleep 30; done'\n")
    terminal.expect("turn 1\n")
    time.sleep(0.5)
    terminal.type("\x03")
    assert "turn 2" not in terminal.expect(r"\$ $")
    terminal.type("innkeeper run -- sleep 30 | cat; echo statuses ${PIPESTATUS[*]}\n")
    time.sleep(0.5)
    terminal.type("\x03")
    terminal.expect("statuses 130 130|\\$ $")


def test_what_is_open_is_the_commands_alone(machine: Machine):
    """The process that keeps the lease holds open neither a pipe's end nor a lock."""
    lock = machine.directory / "lock"
    script = f"exec 9>{lock}; flock 9; {PROGRAM} run -- sh -c 'sleep 60 >/dev/null 2>&1 9>&- & echo $!'"
    worker = int(machine.command("bash", "-c", script, timeout=20).stdout)
    assert len(machine.held()) == 1
    assert machine.command("flock", "-n", str(lock), "true").returncode == 0
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: machine.held() == [])
    # A command that closes its output has closed it.
    begun = time.monotonic()
    script = f"{PROGRAM} run -- sh -c 'echo said; exec >&-; sleep 3' | (cat; echo over)"
    process = subprocess.Popen(["bash", "-c", script], env=machine.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline(), process.stdout.readline()] == ["said\n", "over\n"]
    assert time.monotonic() - begun < 2.5
    assert process.wait(10) == 0


def test_ignored_children_and_what_was_blocked_stay_so(machine: Machine):
    script = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])\n"
        "words = ['innkeeper', 'run', '--', 'grep', '-E', 'Sig(Blk|Ign)', '/proc/self/status']\n"
        f"os.execv({str(PROGRAM)!r}, words)\n"
    )
    done = machine.command(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    fields = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert int(fields["SigBlk"], 16) == 1 << (signal.SIGUSR2 - 1)
    assert int(fields["SigIgn"], 16) & 1 << (signal.SIGCHLD - 1)


def test_the_processors_time_is_counted(machine: Machine):
    spend = "import time\nwhile time.process_time() < 0.3: pass"
    shown = machine.command(
        "bash", "-c", f"TIMEFORMAT='%U %S'; time {PROGRAM} run -- {sys.executable} -c '{spend}'"
    )
    assert sum(map(float, shown.stderr.split())) >= 0.3


def test_it_costs_two_mebibytes_at_most(machine: Machine, start: Callable[[str], Job]):
    job = start(PLAIN)

    def own(pid: int) -> int:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1]) << 10  # type: ignore[index]

    wait_until(lambda: own(job.run) + own(job.keeper) < 2 << 20, 20)


@pytest.mark.parametrize("kills_the_keeper", [False, True])
def test_a_release_by_another_is_said_once(machine: Machine, kills_the_keeper: bool):
    job = machine.start("run", "--", "sleep", "60")
    command = machine.command_below(job)
    keeper = int(Path(f"/proc/{command}/stat").read_text().rsplit(")", 1)[1].split()[1])
    (lease,) = machine.held()
    if kills_the_keeper:
        os.kill(keeper, signal.SIGKILL)
    machine.ok("lease", "release", lease["id"])
    assert job.stderr is not None
    said = job.stderr.readline()
    assert f"the lease {lease['id']} was released: others may be given its GPUs" in said
    time.sleep(2.5)  # The process looks every second.
    assert alive(command)
    os.kill(command, signal.SIGTERM)
    assert job.stderr.read() == ""
