"""`innkeeper queue` after a restart of the machine, or after all processes were killed.

The reported states of jobs are true, and waiting jobs go on: before any caller looks, by the recipes in
docs/program.md.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Command, Jobs, wait_until
from processes import parent
from repository import ROOT

DOCUMENT = (ROOT / "docs" / "program.md").read_text()
UNIT = re.search(r"```ini\n(\[Unit\]\n.*?queue.*?)```", DOCUMENT, re.DOTALL)
CRON = re.search(r"^@reboot (innkeeper queue .*)$", DOCUMENT, re.MULTILINE)


def family(pid: int) -> list[int]:
    """A process and all that descend from it, parents first."""
    found = [pid]
    for each in found:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in found:
                try:
                    if parent(int(entry.name)) == each:
                        found.append(int(entry.name))
                except OSError:
                    continue
    return found


def kill_everything(jobs: Jobs, job: str) -> None:
    """Ends all as the machine's end does: the runner, its watcher, the keeper, the supervisor and the job."""
    life = jobs.directory / "life" / f"{job}.1"
    wait_until(lambda: life.exists() and life.read_text().startswith("began "))
    supervisor = int(life.read_text().split()[1])
    wait_until(lambda: len(family(supervisor)) > 1)
    keeper = parent(supervisor)
    runner = jobs.runner()
    assert runner is not None
    everybody: list[int] = []
    # A stopped process starts no more.
    while everybody != (now := [parent(runner), runner, *family(keeper)]):
        everybody = now
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
    # Children come first: the kernel wakes and ends stopped processes of a group that lost its parents'
    # session.
    for pid in [*everybody[:2], *reversed(everybody[2:])]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: jobs.runner() is None)


def test_a_job_that_was_killed_with_everything_is_interrupted(jobs: Jobs) -> None:
    job = jobs.shell("sleep 600")
    waits = jobs.shell("true", "--after-any", job)
    kill_everything(jobs, job)
    assert re.search(rf"^ +{job}  interrupted ", jobs("list"), re.MULTILINE)
    shown = jobs("show", job)
    assert f"job {job}: interrupted\n" in shown
    assert "  because    nobody saw it end: its supervisor was killed\n" in shown
    assert re.search(r"attempt 1: unknown, from .*, last seen ", shown)
    wait_until(lambda: jobs.show(waits)["state"] == "done")
    assert jobs.wait(job) == 1
    assert jobs.machine.held() == []


def test_show_alone_finds_out_and_so_does_json(jobs: Jobs) -> None:
    job = jobs.shell("sleep 600", "--gpus=0")
    kill_everything(jobs, job)
    assert jobs.show(job)["state"] == "interrupted"
    again = jobs.shell("sleep 600", "--gpus=0", "--retry=1")
    kill_everything(jobs, again)
    wait_until(lambda: jobs.show(again)["attempt"] == 2)
    assert jobs.show(again)["state"] == "running"
    jobs("cancel", again)


def test_the_unit_in_the_document_is_good(command: Command, tmp_path: Path) -> None:
    assert UNIT is not None
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "innkeeper-queue.service"
    unit.write_text(UNIT.group(1))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = command("systemd-analyze", "--user", "verify", unit, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("recipe", ["systemd", "cron"])
def test_the_documented_units_resume_waiting_jobs_before_any_command(jobs: Jobs, recipe: str) -> None:
    assert UNIT is not None and CRON is not None
    start = re.search(r"^ExecStart=(.*)$", UNIT.group(1), re.MULTILINE)
    assert start is not None
    command = start.group(1) if recipe == "systemd" else CRON.group(1)
    # The queue is where it is by itself, and the environment is as bare as at the start of a machine.
    home = jobs.machine.directory / "home"
    jobs.directory = home / ".local/state/innkeeper/queue"
    jobs.machine.env |= {"HOME": str(home), "INNKEEPER_QUEUE_DIR": "", "XDG_STATE_HOME": ""}
    jobs("slots", "1")
    job = jobs.shell("sleep 600", "--gpus=0")
    done = jobs.machine.directory / "done"
    jobs.shell(f"touch {done}", "--gpus=0")
    kill_everything(jobs, job)
    bare = {"HOME": str(home), "PATH": f"{PROGRAM.parent}:/usr/bin:/bin"}
    jobs.machine.command("/bin/sh", "-c", command, env=bare, check=True, timeout=30)
    wait_until(done.exists)
    wait_until(lambda: jobs.runner() is None)
