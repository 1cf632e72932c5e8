"""`innkeeper queue` on a full or read-only disk, and `queue prune`, which frees space."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Jobs, Machine, wait_until
from small_disk import fill, small_disk

__all__ = ["small_disk"]


def count(directory: Path) -> int:
    """Number of files in the directory."""
    return len(list(directory.iterdir()))


def test_prune_forgets_what_ended_long_ago(jobs: Jobs) -> None:
    jobs("slots", "1")  # One slot makes them end in this order.
    bad = jobs.shell("echo bad; exit 1", "--gpus=0")
    ids = [jobs.add("--gpus=0", "--", "echo", str(i)) for i in range(3)]
    assert jobs.wait(bad, *ids) == 1
    jobs("pause")
    waits = jobs.shell("true", "--gpus=0")
    assert jobs("prune") == "pruned 0 jobs and 0 B of output\n", "by the usual bounds"
    assert jobs("prune", "--older=1h", "--keep=2") == "pruned 2 jobs and 6 B of output\n"
    assert [job["id"] for job in json.loads(jobs("list", "--all", "--json"))["jobs"]] == [
        int(ids[1]),
        int(ids[2]),
        int(waits),
    ]
    assert count(jobs.directory / "output") == 2
    run = jobs.machine.run
    for verb in ("show", "log", "cancel", "pause"):
        done = run("queue", verb, bad)
        assert done.returncode == 66 and done.stdout == "", verb
        assert (
            done.stderr
            == f"innkeeper queue {verb}: there is no job {bad} any more: it was failed, and pruned\n"
        )
    done = run("queue", "wait", bad, ids[0])
    assert (done.returncode, done.stderr) == (1, f"innkeeper: job {bad} is failed\n")
    refused = run("queue", "add", "--gpus=0", "--after", bad, "--", "true")
    assert refused.returncode == 64 and "did not succeed" in refused.stderr
    after = jobs.shell("true", "--gpus=0", "--after", ids[0])
    jobs("resume")
    assert jobs.wait(after, waits) == 0


def test_prune_by_itself_is_set_and_shown(jobs: Jobs) -> None:
    assert jobs("prune", "--auto") == "kept by itself: the last 20000 jobs that ended, for 90 d\n"
    assert jobs("prune", "--auto", "--keep=1") == "kept by itself: the last 1 jobs that ended, for 90 d\n"
    ids = [jobs.add("--gpus=0", "--", "echo", str(i)) for i in range(3)]
    assert jobs.wait(*ids) == 0
    wait_until(lambda: jobs.runner() is None)
    assert len(json.loads(jobs("list", "--all", "--json"))["jobs"]) == 1
    both = jobs("prune", "--auto", "--keep=all", "--older=never")
    assert both == "kept by itself: all jobs, for ever\n"
    for words in (["--keep=x"], ["--keep=-1"], ["--older=soon"], ["--older=0s"]):
        assert jobs.machine.run("queue", "prune", *words).returncode == 64, words


def test_output_that_is_followed_stays(jobs: Jobs) -> None:
    job = jobs.shell(f"echo first; {jobs.until_go}; echo last", "--gpus=0", "--retry=1")
    tracker = jobs.machine.start("queue", "log", "-f", job)
    assert tracker.stdout is not None
    assert tracker.stdout.readline() == "first\n"
    os.kill(tracker.pid, 19)  # SIGSTOP makes it slow.
    jobs.go.touch()
    assert jobs.wait(job) == 0
    assert jobs("prune", "--keep=0") == "pruned 0 jobs and 0 B of output\n"
    os.kill(tracker.pid, 18)
    assert tracker.communicate(timeout=60)[0] == "last\n"
    assert jobs("prune", "--keep=0") == "pruned 1 job and 11 B of output\n"


def test_a_full_disk_refuses_with_numbers_and_loses_nothing(jobs: Jobs, small_disk: Path) -> None:
    jobs.put_on(small_disk)
    jobs("slots", "1")
    running = jobs.shell(jobs.until_go, "--gpus=0")
    wait_until(lambda: jobs.show(running)["state"] == "running")
    waiting = [jobs.shell("echo out", "--gpus=0") for _ in range(3)]
    filler = fill(small_disk)
    refused = 0
    # Adds jobs until the free space inside the database file is used up.
    for _ in range(200):
        done = jobs.machine.run("queue", "add", "--gpus=0", "--", "true", "x" * 3000)
        if done.returncode != 0:
            refused += 1
            assert done.returncode == 73 and done.stdout == ""
            assert done.stderr.count("\n") == 1
            assert "no room" in done.stderr and "0 B free of 1.0 MiB" in done.stderr, done.stderr
            break
        waiting.append(done.stdout.strip())
    assert refused == 1
    jobs.go.touch()
    time.sleep(0.5)
    # The end of a job is known, or will be; no report states a failure.
    assert jobs.show(running)["state"] in ("running", "done")
    filler.unlink()
    assert jobs.wait(running, *waiting) == 0
    assert jobs.log(waiting[0]) == "out\n"
    assert all(len(jobs.show(job)["attempts"]) == 1 for job in waiting)


def test_a_limit_on_files_refuses_and_loses_nothing(jobs: Jobs) -> None:
    jobs("pause")
    first = jobs.shell("true", "--gpus=0")
    limit = "ulimit -f 8; trap '' XFSZ; exec \"$@\""
    words = ["sh", "-c", limit, "sh", str(PROGRAM), "queue", "add", "--gpus=0", "--", "true"]
    done = jobs.machine.command(*words, "x" * 60000)
    assert done.returncode == 73 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and str(jobs.directory) in done.stderr
    assert [job["id"] for job in json.loads(jobs("list", "--json"))["jobs"]] == [int(first)]
    jobs("resume")
    assert jobs.wait(first) == 0


def test_a_directory_that_cannot_be_written_says_so(jobs: Jobs, small_disk: Path) -> None:
    jobs.put_on(small_disk)
    jobs("pause")
    job = jobs.shell("true", "--gpus=0")
    jobs.machine.command("mount", "-o", "remount,ro", small_disk, check=True)
    for words in (["queue", "add", "--gpus=0", "--", "true"], ["queue", "list"]):
        done = jobs.machine.run(*words)
        assert done.returncode == 73 and done.stdout == ""
        assert done.stderr.count("\n") == 1 and "Read-only file system" in done.stderr
        assert "INNKEEPER_QUEUE_DIR" in done.stderr and str(small_disk) in done.stderr
    fresh = jobs.machine.run("queue", "list", env={"INNKEEPER_QUEUE_DIR": str(small_disk / "other")})
    assert fresh.returncode == 73 and "INNKEEPER_QUEUE_DIR" in fresh.stderr
    jobs.machine.command("mount", "-o", "remount,rw", small_disk, check=True)
    jobs("resume")
    assert jobs.wait(job) == 0


@pytest.mark.parametrize("size", ["8k", "16k", "32k", "48k", "64k", "80k", "96k", "128k"])
def test_a_queue_without_disk_space_for_its_database_begins_once_there_is_some(
    jobs: Jobs, small_disk: Path, size: str
) -> None:
    machine = jobs.machine
    machine.command("mount", "-o", f"remount,size={size}", small_disk, check=True)
    machine.env["INNKEEPER_QUEUE_DIR"] = str(small_disk / "queue")
    refused = machine.run("queue", "add", "--gpus=0", "--", "true")
    assert refused.returncode in (0, 73), refused
    machine.command("mount", "-o", "remount,size=8m", small_disk, check=True)
    for words in (["add", "--gpus=0", "--", "true"], ["list"], ["wait"], ["prune"]):
        done = machine.run("queue", *words)
        assert done.returncode == 0, (words, done.stderr)
    jobs.machine.env["INNKEEPER_QUEUE_DIR"] = str(jobs.directory)


@pytest.mark.parametrize("limit", [1, 4, 8, 16])
def test_a_first_command_that_is_killed_for_its_file_size_leaves_no_half_database(
    jobs: Jobs, limit: int
) -> None:
    jobs.machine.command("bash", "-c", f"ulimit -f {limit}; {PROGRAM} queue add --gpus=0 -- true")
    assert jobs.wait(jobs.add("--gpus=0", "--", "true")) == 0


def test_a_directory_that_depends_on_where_one_stands_is_refused(machine: Machine, tmp_path: Path) -> None:
    done = machine.command(
        PROGRAM, "queue", "list", env=machine.env | {"INNKEEPER_QUEUE_DIR": "rel"}, cwd=tmp_path
    )
    assert done.returncode != 0 and done.stdout == ""
    assert (
        'INNKEEPER_QUEUE_DIR is "rel", which is another directory wherever a program is: name it from / on'
        in done.stderr
    )
    assert list(tmp_path.iterdir()) == []
