"""`innkeeper queue`: a job is all of its processes. It keeps its GPUs while one of them lives.

This holds for any session and any parent of the process; and the queue reports it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from innkeeper_program import Jobs, uuid, wait_until

# """Starts workers like torchrun's: sessions of their own, without its descriptors, which ignore SIGTERM."""
LAUNCHER = """
import pathlib, subprocess, sys, time
worker = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
started = [subprocess.Popen([sys.executable, "-c", worker], start_new_session=True, stdout=subprocess.PIPE)
           for _ in range(2)]
for each in started:
    each.stdout.readline()
pathlib.Path(sys.argv[1]).write_text(" ".join(str(each.pid) for each in started))
time.sleep(float(sys.argv[2]))
"""


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def launcher(jobs: Jobs, *options: str, seconds: float = 600) -> tuple[str, list[int]]:
    """A job with such workers, and their process numbers."""
    file = jobs.machine.directory / "workers"
    job = jobs.add("--gpus=2", *options, "--", sys.executable, "-c", LAUNCHER, str(file), str(seconds))
    wait_until(lambda: file.exists() and len(file.read_text().split()) == 2)
    return job, [int(pid) for pid in file.read_text().split()]


def test_a_cancelled_jobs_gpus_are_its_own_until_the_last_worker_is_gone(jobs: Jobs) -> None:
    job, workers = launcher(jobs, "--grace=2s")
    jobs("cancel", job)
    wait_until(lambda: jobs.show(job)["program_ended"])
    assert jobs.machine.run("pick").returncode == 75, "they hold the GPUs"
    assert all(alive(pid) for pid in workers)
    assert "running, program ended" in jobs("list")
    assert jobs.wait(job) == 1
    assert jobs.show(job)["state"] == "cancelled"
    assert not any(alive(pid) for pid in workers)
    assert jobs.machine.ok("pick", "-n2") == f"{uuid(0)},{uuid(1)}\n"


def test_its_time_limit_ends_them_as_well(jobs: Jobs) -> None:
    job, workers = launcher(jobs, "--time=1s", "--grace=1s")
    assert jobs.wait(job) == 1
    assert jobs.show(job)["how"] == "time limit"
    assert not any(alive(pid) for pid in workers)
    assert jobs.machine.held() == []


def test_what_a_job_leaves_behind_is_ended_and_told_of(jobs: Jobs) -> None:
    job = jobs.shell("nohup sleep 600 >/dev/null 2>&1 & echo $!", "--gpus=2")
    wait_until(lambda: jobs.show(job)["program_ended"])
    pid = int(jobs.log(job))
    shown = jobs.show(job)
    assert shown["state"] == "running" and alive(pid)
    wait_until(lambda: jobs.show(job)["left"]["processes"] == [f"sleep ({pid})"])
    assert f"left       its program has ended, exit 0; not yet: sleep ({pid})" in jobs("show", job)
    assert jobs.machine.run("pick").returncode == 75
    assert jobs.wait(job) == 0
    assert not alive(pid) and jobs.machine.held() == []
    assert f"its program left a process behind, which was ended: sleep ({pid})" in jobs("show", job)
    assert jobs.show(job)["left"] is None


def test_a_job_that_lingers_has_its_gpus_until_what_it_left_has_ended(jobs: Jobs) -> None:
    job = jobs.shell("nohup sleep 600 >/dev/null 2>&1 & echo $!", "--gpus=2", "--linger")
    wait_until(lambda: jobs.show(job)["program_ended"])
    pid = int(jobs.log(job))
    time.sleep(2.5)
    assert alive(pid) and jobs.machine.run("pick").returncode == 75
    os.kill(pid, signal.SIGKILL)
    assert jobs.wait(job) == 0
    assert jobs.machine.held() == []
    assert "until what it leaves in the background has ended" in jobs("show", job)


def test_grace_is_what_was_requested(jobs: Jobs) -> None:
    jobs("pause")
    plain, named = jobs.shell("true", "--gpus=0"), jobs.shell("true", "--gpus=0", "--grace=2m")
    assert [jobs.show(job)["grace"] for job in (plain, named)] == [30.0, 120.0]
    assert "grace      2 min" in jobs("show", named) and "grace" not in jobs("show", plain)
    refused = jobs.machine.run("queue", "add", "--gpus=0", "--grace=soon", "--", "true")
    assert refused.returncode == 64 and "--grace" in refused.stderr
