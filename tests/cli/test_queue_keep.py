"""`innkeeper queue`: a job's GPUs and its state stay while a process of it lives, after any kill."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest
from innkeeper_program import PROGRAM, Jobs, wait_until
from processes import alive, parent
from test_keep import HIDDEN


class Running:
    """A job whose program has left a worker that closed its descriptors, in a session of its own."""

    def __init__(self, jobs: Jobs) -> None:
        script = f"import os, time\n{HIDDEN}\nprint(*workers, os.getpid(), flush=True)\ntime.sleep(60)"
        self.id = jobs.add("--", sys.executable, "-c", script)
        wait_until(lambda: len(jobs.machine.run("queue", "log", self.id).stdout.split()) == 2)
        self.worker, self.program = map(int, jobs.log(self.id).split())
        life = jobs.directory / "life" / f"{self.id}.1"
        self.supervisor = int(life.read_text().split()[1])
        self.keeper = parent(self.supervisor)


@pytest.fixture
def running(jobs: Jobs) -> Iterator[Running]:
    made = Running(jobs)
    yield made
    with contextlib.suppress(OSError):
        os.kill(made.worker, signal.SIGKILL)


@pytest.mark.parametrize("killed", ["supervisor program", "program supervisor"])
def test_a_job_runs_until_its_last_process_is_gone(jobs: Jobs, running: Running, killed: str):
    gone = [getattr(running, name) for name in killed.split()]
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, gone)))
    assert alive(running.worker)
    time.sleep(0.3)
    assert jobs.show(running.id)["state"] == "running"
    wait_until(lambda: [lease["pid"] for lease in jobs.machine.held()] == [running.keeper])
    os.kill(running.worker, signal.SIGKILL)
    wait_until(lambda: jobs.show(running.id)["state"] == "interrupted")
    assert jobs.machine.held() == []
    wait_until(lambda: not alive(running.keeper))


def test_without_its_keeper_a_job_goes_on(jobs: Jobs, running: Running):
    os.kill(running.keeper, signal.SIGKILL)
    runner = jobs.runner()
    assert runner is not None
    os.kill(parent(runner), signal.SIGKILL)  # The runner's watcher.
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: jobs.runner() not in (None, runner))  # The supervisor starts another.
    assert jobs.show(running.id)["state"] == "running" and len(jobs.machine.held()) == 1
    jobs("cancel", running.id)
    wait_until(lambda: jobs.show(running.id)["state"] == "cancelled")
    assert not alive(running.worker) and jobs.machine.held() == []


def test_the_keeper_starts_a_runner(jobs: Jobs, running: Running):
    runner = jobs.runner()
    assert runner is not None
    os.kill(running.supervisor, signal.SIGSTOP)
    os.kill(parent(runner), signal.SIGKILL)
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: jobs.runner() not in (None, runner))
    os.kill(running.supervisor, signal.SIGCONT)
    jobs("cancel", running.id)
    wait_until(lambda: jobs.show(running.id)["state"] == "cancelled")


def test_a_queue_that_is_first_used_in_a_command_is_no_part_of_it(jobs: Jobs):
    """The job waits for the command's GPU, so neither may wait for the other."""
    machine = jobs.machine
    done = machine.run("run", "-n", "1", "--", PROGRAM, "queue", "add", "--", "echo", "hello")
    assert done.returncode == 0, done.stderr
    job = done.stdout.split()[-1]
    assert jobs.wait(job) == 0 and jobs.log(job) == "hello\n"


def test_what_a_command_leaves_beside_a_queue_keeps_its_gpus(jobs: Jobs):
    machine = jobs.machine
    script = f"{PROGRAM} queue add --gpus=0 -- sleep 60 > /dev/null; setsid sleep 3 > /dev/null 2>&1 & exit 0"
    done = machine.run("run", "-n", "1", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert len(machine.held()) == 1, "the job has none"
    wait_until(lambda: machine.held() == [], 20)
    assert jobs.runner() is not None
    jobs("cancel", "1")
