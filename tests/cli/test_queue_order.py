"""`innkeeper queue`: order of GPU grants to waiting jobs, lost GPUs, reports on several jobs at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Jobs, gpus, uuid, wait_until


def test_many_requests_for_one_gpu_leave_the_others_alone(jobs: Jobs) -> None:
    jobs.machine.env["CUDA_VISIBLE_DEVICES"] = uuid(0)
    many = jobs.shell("sleep 60", "--array=1-200")
    wait_until(lambda: jobs.show(f"{many}.0")["state"] == "running")
    jobs.machine.env["CUDA_VISIBLE_DEVICES"] = uuid(1)
    other = jobs.shell("true")
    assert jobs.wait(other) == 0
    jobs("cancel", many)


def test_a_small_request_goes_past_many_that_do_not_fit(jobs: Jobs) -> None:
    big = jobs.shell("sleep 60", "--mem=100G", "--array=1-200")
    wait_until(lambda: jobs.show(f"{big}.1")["state"] == "running")
    small = jobs.shell("true", "--mem=10G")
    assert jobs.wait(small) == 0
    jobs("cancel", big)


def test_the_order_is_kept_among_different_requests(jobs: Jobs) -> None:
    jobs("pause")
    first = jobs.shell("true", "--gpus=2")
    second = jobs.shell("true")
    urgent = jobs.shell(jobs.until_go, "--mem=100G", "--exclusive", "--gpus=2", "--priority=1")
    jobs("resume")
    leases = ("lease", "list", "--json")
    wait_until(lambda: json.loads(jobs.machine.ok(*leases))["waiting"])  # The first job stands in line.
    jobs.go.touch()
    assert jobs.wait(first, second, urgent) == 0
    began = [jobs.show(job)["started"] for job in (urgent, first, second)]
    assert began == sorted(began)


def test_a_gpu_that_is_lost_for_a_while_fails_no_job(jobs: Jobs) -> None:
    jobs.machine.set(gpus(2, {1: "  lost\n"}))
    both = jobs.shell("true", "--gpus=2")
    after = jobs.shell("true", "--gpus=0", "--after", both)
    wait_until(lambda: "2 whole GPUs" in jobs.show(both)["reason"])
    assert (jobs.show(both)["state"], jobs.show(after)["state"]) == ("queued", "queued")
    jobs.machine.set(gpus(2))
    assert jobs.wait(both, after) == 0


def test_a_sweeps_values_win_over_the_adders_variables(jobs: Jobs) -> None:
    jobs.machine.env |= {"lr": "9", "INNKEEPER_ARRAY_INDEX": "77"}
    sweep = jobs.add(
        "--gpus=0", "--sweep=lr=1,2", "--array=3", "--", "/usr/bin/printenv", "lr", "INNKEEPER_ARRAY_INDEX"
    )
    assert jobs.wait(sweep) == 0
    assert [jobs.log(f"{sweep}.{i}") for i in range(2)] == ["1\n3\n", "2\n3\n"]


def test_a_job_has_the_limits_of_its_adder_and_not_of_the_runners_starter(jobs: Jobs) -> None:
    def shell(script: str) -> str:
        return jobs.machine.command("/bin/sh", "-c", script, check=True).stdout.strip()

    ask = "'umask; ulimit -n; ulimit -f; nice'"
    add = f"{PROGRAM} queue add --gpus=0 -- /bin/sh -c"
    first = shell(f"umask 077; ulimit -S -n 64; ulimit -S -f 8; {add} '{jobs.until_go}'")
    second = shell(f"umask 027; ulimit -S -n 99; exec nice -n 3 {add} {ask}")
    third = shell(f"{add} {ask}")
    jobs.go.touch()
    assert jobs.wait(first, second, third) == 0
    assert jobs.log(second).split() == ["0027", "99", "unlimited", shell("nice -n 3 nice").strip()]
    assert jobs.log(third).strip() == shell(f"eval {ask}")


def test_an_array_is_paused_and_resumed_though_some_of_it_has_ended(jobs: Jobs) -> None:
    jobs("slots", "1")
    array = jobs.shell(f"test {{index}} = 0 || {jobs.until_go}", "--gpus=0", "--array=0-2")
    wait_until(lambda: jobs.show(f"{array}.1")["state"] == "running")
    jobs("pause", array)
    assert "paused" in jobs("list")
    jobs("resume", array)
    jobs.go.touch()
    assert jobs.wait(array) == 0
    refused = jobs.machine.run("queue", "pause", array)
    assert refused.returncode == 64 and "has ended: it is done" in refused.stderr


def test_what_an_array_needed_is_proposed(jobs: Jobs) -> None:
    ready = jobs.machine.directory / "ready"
    script = f"echo $$ > {ready}; while [ -e {ready} ]; do sleep 0.05; done; echo"
    words = ("--sweep=a=7", "--", "/bin/sh", "-c", script, "{a}")
    job = jobs.add(*words)
    wait_until(lambda: ready.exists() and ready.read_text().strip())
    jobs.machine.set(gpus(2, {0: f"  process {ready.read_text().strip()} 7000M\n", 1: ""}))
    wait_until(lambda: jobs.show(job)["attempts"][0]["peak_memory"] > 0)
    ready.unlink()
    assert jobs.wait(job) == 0
    jobs.machine.set(gpus(2))
    again = jobs.add("--mem=auto", *words)
    assert jobs.show(again)["memory"] == 7936 << 20
    jobs("cancel", again)


def test_a_notification_has_no_lease_of_the_adders(jobs: Jobs) -> None:
    told = jobs.machine.directory / "told"
    run = (str(PROGRAM), "run", "--", str(PROGRAM), "queue", "add", "--gpus=0")
    words = (*run, f"--notify=env > {told}.new; mv {told}.new {told}", "--", "/bin/true")
    jobs.machine.command(*words, check=True)
    wait_until(told.exists)
    variables = [line.partition("=")[0] for line in told.read_text().splitlines()]
    assert "INNKEEPER_JOB_ID" in variables
    assert not {"INNKEEPER_LEASE", "INNKEEPER_LEASE_FD"} & set(variables)


def test_a_runner_is_not_started_for_a_queue_that_is_paused(jobs: Jobs) -> None:
    jobs("pause")
    job = jobs.shell("true", "--gpus=0")
    wait_until(lambda: jobs.runner() is None)
    lock = jobs.directory / "runner.lock"
    lock.write_text("")
    waited = jobs.machine.run("queue", "wait", "--timeout=2s", job)
    assert waited.returncode == 75
    assert lock.read_text() == "", "a runner was started"


@pytest.mark.parametrize("words", [("queue", "add", "--gpus=0", "--", "true"), ("pick", "--hold=1m")])
def test_a_number_that_cannot_be_printed(jobs: Jobs, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = jobs.machine.command(PROGRAM, *words, stdout=full)
    assert done.returncode == 74
    if words[0] == "queue":
        assert "job 1 was added" in done.stderr
    wait_until(lambda: jobs.machine.files() == [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["slots", "0"], "1"),
        (["list", "--last", "0"], "--last"),
        (["log", "--attempt", "-3", "1"], "--attempt"),
        (["add", "-C", "/no/such/directory", "--", "true"], "--directory /no/such/directory"),
    ],
)
def test_numbers_and_directories_that_cannot_be(jobs: Jobs, words: list[str], text: str) -> None:
    done = jobs.machine.run("queue", *words)
    assert done.returncode == 64 and text in done.stderr, done


def test_completion_does_not_offer_what_is_not_for_people(jobs: Jobs) -> None:
    assert "runner" not in jobs.machine.ok("completion", "bash") + jobs("--help")
    for words in (["queue"], ["queue", "frob"]):
        assert "runner" not in jobs.machine.run(*words).stderr
