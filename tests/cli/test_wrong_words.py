"""Messages for misspelt commands and impossible requests."""

from __future__ import annotations

from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Jobs, Machine, wait_until


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--wait", "30s", "--", "true"], "30s is out of place: a limit is written --wait=30s"),
        (["run", "30", "--", "true"], "30 is out of place: a limit is written --wait=30s"),
        (["run", "--mem", "auto", "--", "true"], "--mem auto is for a queue"),
        (["--json", "status"], "--json goes behind the command, as in: innkeeper status --json"),
        (["--mem", "3G", "run", "--", "true"], "--mem goes behind the command, as in: innkeeper run --mem"),
        (["queue", "list", "--last", "0"], "--last: Value 0 not in range 1 to 1000000000"),
    ],
    ids=" ".join,
)
def test_words_in_the_wrong_place(machine: Machine, words: list[str], said: str) -> None:
    done = machine.run(*words)
    assert done.returncode == 64
    assert said in done.stderr.splitlines()[0], done.stderr


def test_the_output_of_several_jobs(jobs: Jobs) -> None:
    jobs("pause")
    jobs.add("-n0", "--array", "1-3", "--", "echo", "{index}")
    for word, least in (("1", "1.0"), ("1-2", "1")):
        done = jobs.machine.run("queue", "log", word)
        assert done.returncode == 64 and f"the output of one: {least}, say" in done.stderr
    jobs("resume")
    assert jobs.wait("1") == 0
    done = jobs.machine.run("queue", "log", "1.0", "--attempt", "2")
    assert "job 1 has no attempt 2: it was begun 1 time; `innkeeper queue show 1` says more" in done.stderr


def test_a_job_that_no_gpu_can_hold(jobs: Jobs) -> None:
    done = jobs.machine.run("queue", "add", "--mem", "500G", "--", "true")
    assert done.returncode == 0
    assert "it asks for 500.0 GiB of each GPU, and the largest here has 139.0 GiB" in done.stderr
    done = jobs.machine.run("queue", "wait", done.stdout.strip())
    assert done.returncode == 1 and "`innkeeper queue show 1` says more" in done.stderr


def test_several_leases_are_released_or_none(machine: Machine) -> None:
    lease, _ = machine.ok("lease", "hold", "--mem", "1G", "--for", "60s", "--background").split()
    for wrong, code in (("bad", 64), ("0" * 16, 66)):
        assert machine.run("lease", "release", lease, wrong).returncode == code
        assert lease in machine.ok("lease", "list")
    machine.ok("lease", "release", lease)
    assert machine.ok("lease", "list").startswith("no leases in ")


def test_a_lease_directory_that_depends_on_where_one_is(machine: Machine) -> None:
    directory = {"INNKEEPER_LEASE_DIR": "leases"}
    done = machine.run("pick", env=directory)
    assert done.returncode == 73 and 'INNKEEPER_LEASE_DIR is "leases"' in done.stderr
    shown = machine.ok("status", env=directory)
    first, _, gpu, *_ = shown.splitlines()
    assert first.endswith(", leases not known") and gpu.count(" ?") >= 4


def test_more_gpus_than_there_are(jobs: Jobs) -> None:
    done = jobs.machine.run("queue", "add", "-n", "9", "--", "true")
    assert "it asks for 9 GPUs, and there are" in done.stderr


def test_a_lease_that_has_ended_is_named_with_the_cure(machine: Machine) -> None:
    lease = machine.ok("lease", "hold", "--mem", "1G", "--for", "60s", "--background").split()[0]
    machine.ok("lease", "release", lease)
    done = machine.run("run", "--mem", "5G", "--", "true", env={"INNKEEPER_LEASE": lease})
    assert done.returncode == 66, "69 would say that there is no GPU"
    assert f"the lease {lease}, inside which GPUs were asked for, has ended" in done.stderr
    assert "unset INNKEEPER_LEASE INNKEEPER_LEASE_FD" in done.stderr


def test_a_job_does_not_wait_for_itself(jobs: Jobs) -> None:
    script = f"{PROGRAM} queue add -n0 -- sleep 1; {PROGRAM} queue wait --timeout 20s"
    job = jobs.shell(script, "-n0")
    assert jobs.wait(job) == 0, jobs.log(job)
    named = jobs.shell(f"{PROGRAM} queue wait $INNKEEPER_JOB_ID", "-n0")
    assert jobs.wait(named) == 1
    assert "is the one in which this runs: it cannot wait for its own end" in jobs.log(named)


def test_a_job_whose_directory_is_gone_says_so(jobs: Jobs, tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    jobs("pause")
    job = jobs.add("-n0", "--directory", str(directory), "--", "true")
    directory.rmdir()
    jobs("resume")
    assert jobs.wait(job) == 1
    assert jobs.log(job) == f"innkeeper: the job's directory {directory}: No such file or directory\n"


def test_the_lease_of_a_job_names_it(jobs: Jobs) -> None:
    job = jobs.add("--", "sleep", "30")
    wait_until(lambda: f"queue {job}: " in jobs.machine.ok("lease", "list"))
    jobs("cancel", job)


def test_an_empty_directory_of_roots_is_no_weakness(machine: Machine) -> None:
    assert "is not root's" not in machine.run("status").stderr + machine.run("doctor").stdout
