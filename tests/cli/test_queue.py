"""`innkeeper queue`: jobs on fake GPUs, driven as from a shell."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from innkeeper_program import AMD, PROGRAM, Jobs, gpus, uuid, visible, wait_until


def test_a_job_runs_and_its_output_is_kept(jobs: Jobs) -> None:
    job = jobs.shell(
        "echo hello; echo $FRUIT; echo bad >&2", "--gpus=0", "--env", "FRUIT=fig", "--name", "demo"
    )
    assert job == "1"
    assert jobs.wait(job) == 0
    assert jobs.log(job) == "hello\nfig\nbad\n"
    table = jobs("list")
    assert "demo" in table and "done" in table
    shown = jobs("show", job)
    assert "job 1: done" in shown and "1 CPU slot" in shown
    assert re.search(rf"^  directory +{re.escape(str(Path.cwd()))}$", shown, re.MULTILINE)


def test_a_directory_has_one_name(jobs: Jobs) -> None:
    directory = jobs.machine.directory
    words = ([], ["-C", "."], ["-C", str(directory)], ["-C", f"{directory}/x/.."], ["-C", f"{directory}/"])
    jobs("pause")
    for options in words:
        added = ["queue", "add", "--gpus=0", *options, "--", "pwd"]
        jobs.machine.command(PROGRAM, *added, cwd=directory, check=True)
    shown = json.loads(jobs("show", "--json", "1-5"))
    assert {job["directory"] for job in shown} == {str(directory)}


def test_a_list_for_programs_says_what_show_says(jobs: Jobs) -> None:
    bad = jobs.shell("exit 3", "--gpus=0", "--name", 'a "b" \\ \u00e4')
    assert jobs.wait(bad) == 1
    jobs("pause")
    waits = jobs.shell("true", "--mem=1G", "--priority=-2")
    jobs.add("--gpus=0", "--array=1-2", "--after-any", waits, "--", "true")
    listed = json.loads(jobs("list", "--json"))
    assert listed["paused"] is True and listed["cpu_slots"] >= 1
    assert [job["id"] for job in listed["jobs"]] == [1, 2, 3, 4]
    for job in listed["jobs"]:
        shown = jobs.show(str(job["id"]))
        assert job == {name: shown[name] for name in job}
    assert len(listed["jobs"][0]) == 16 and listed["jobs"][0]["how"] == "exited"
    jobs("cancel", "1-4")


def test_wait_says_whether_jobs_succeeded(jobs: Jobs) -> None:
    bad = jobs.shell("exit 3", "--gpus=0")
    done = jobs.machine.run("queue", "wait", bad)
    assert done.returncode == 1
    assert done.stderr == f"innkeeper: job {bad} is failed; `innkeeper queue show {bad}` says more\n"
    assert jobs.show(bad)["code"] == 3
    assert "failed, exit 3" in jobs("list")
    slow = jobs.shell("sleep 20", "--gpus=0")
    assert jobs.machine.run("queue", "wait", "--timeout=1s", slow).returncode == 75
    jobs("cancel", slow)
    assert jobs.wait(slow) == 1
    assert jobs.wait() == 0, "nothing is left to wait for"


def test_in_a_machine_of_two_vendors_a_job_sees_one_s(jobs: Jobs) -> None:
    jobs.machine.add_amd()
    amd = ["CUDA ", "HIP 0,1", "ROCR " + ",".join(AMD)]
    for request, seen in (
        (("--gpus=0",), ["CUDA ", "ROCR "]),
        (("--gpus=2", "--mem=8G"), amd),
        (("--gpus=2", "--mem=8G", "--env=ROCR_VISIBLE_DEVICES="), [f"CUDA {uuid(0)},{uuid(1)}", "ROCR "]),
    ):
        job = jobs.add(*request, "--", "env")
        assert jobs.wait(job) == 0
        assert visible(jobs.log(job)) == seen


def test_a_job_has_a_lease_on_its_gpu(jobs: Jobs) -> None:
    job = jobs.shell(
        f"echo $CUDA_VISIBLE_DEVICES $INNKEEPER_NODES; {jobs.until_go}", "--mem", "8G", "--share"
    )
    wait_until(lambda: jobs.show(job)["state"] == "running" and jobs.machine.held())
    held = jobs.machine.held()
    assert [lease["job"] for lease in held] == [f"queue {job}"]
    jobs.go.touch()
    assert jobs.wait(job) == 0
    gpu, nodes = jobs.log(job).split()
    assert gpu in (uuid(0), uuid(1)) and nodes == f"auto:{15 << 29}B"
    assert jobs.show(job)["attempts"][0]["gpus"] == gpu
    assert jobs.machine.held() == []


def test_a_lease_belongs_to_its_job_and_outlives_the_runner(jobs: Jobs) -> None:
    job = jobs.shell(jobs.until_go, "--gpus=2")
    wait_until(lambda: jobs.show(job)["state"] == "running")
    # The file says "began PID ...": the supervisor's, which is in the lease as well from then on.
    life = jobs.directory / "life" / f"{job}.1"
    wait_until(lambda: life.read_text().startswith("began "))
    supervisor = int(life.read_text().split()[1])
    assert [lease["pid"] for lease in jobs.machine.held()] == [supervisor]
    runner = jobs.runner()
    assert runner is not None and runner != supervisor
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: jobs.runner() not in (None, runner))
    assert [lease["pid"] for lease in jobs.machine.held()] == [supervisor]
    assert jobs.machine.run("pick").returncode == 75, "its GPUs are taken"
    jobs.go.touch()
    assert jobs.wait(job) == 0
    assert jobs.machine.held() == []


def test_gpus_are_never_shared_by_whole_requests(jobs: Jobs) -> None:
    script = f"echo $CUDA_VISIBLE_DEVICES; {jobs.until_go}; sleep 0.1"
    first, second, third = (jobs.shell(script) for _ in range(3))
    both = jobs.shell(script, "--gpus=2", "--priority=-1")
    wait_until(lambda: jobs.show(second)["state"] == "running")
    jobs.go.touch()
    assert jobs.wait(first, second, third, both) == 0
    assert {jobs.log(first).strip(), jobs.log(second).strip()} == {uuid(0), uuid(1)}
    assert jobs.show(third)["started"] > min(jobs.show(j)["ended"] for j in (first, second)) - 0.05
    assert set(jobs.log(both).strip().split(",")) == {uuid(0), uuid(1)}
    assert jobs.show(both)["started"] >= jobs.show(third)["ended"] - 0.05


def test_a_queue_waits_for_other_users_leases(jobs: Jobs) -> None:
    holder = jobs.machine.start("lease", "hold", "--gpus=2")
    assert holder.stdout is not None
    holder.stdout.readline()
    job = jobs.shell("true")
    wait_until(lambda: jobs.show(job)["reason"])
    assert jobs.show(job)["state"] == "queued"
    holder.send_signal(signal.SIGTERM)
    assert jobs.wait(job) == 0


def test_jobs_keep_to_the_gpus_they_were_given(jobs: Jobs) -> None:
    jobs.machine.env["CUDA_VISIBLE_DEVICES"] = uuid(1)
    first, second = (jobs.shell("echo $CUDA_VISIBLE_DEVICES; sleep 0.2") for _ in range(2))
    assert jobs.wait(first, second) == 0
    assert jobs.log(first).strip() == jobs.log(second).strip() == uuid(1)
    assert jobs.show(second)["started"] >= jobs.show(first)["ended"] - 0.05
    cpu = jobs.shell("echo [$CUDA_VISIBLE_DEVICES]", "--gpus=0")
    assert jobs.wait(cpu) == 0
    assert jobs.log(cpu) == "[]\n"


def test_what_can_never_run_fails_with_the_reason(jobs: Jobs) -> None:
    added = jobs.machine.run("queue", "add", "--gpus=3", "--", "true")
    job = added.stdout.strip()
    assert "it asks for 3 GPUs, and there are 2 here" in added.stderr
    assert jobs.wait(job) == 1
    assert "3" in jobs.show(job)["reason"]


def test_a_request_for_gpus_where_none_is_seen_is_told_that_it_waits(jobs: Jobs) -> None:
    jobs.machine.set("driver 550.54.15\n")
    waits = jobs.machine.run("queue", "add", "--", "true")
    assert waits.stdout == "1\n" and waits.stderr.count("\n") == 1
    assert "it waits: no GPU is seen here" in waits.stderr and "innkeeper doctor" in waits.stderr
    assert jobs.machine.run("queue", "add", "--gpus=0", "--", "true").stderr == ""
    jobs("cancel", "1")
    jobs.machine.set(gpus(2))
    assert jobs.machine.run("queue", "add", "--mem=1G", "--", "true").stderr == ""


def test_jobs_of_a_sweep_are_told_apart_in_a_list(jobs: Jobs) -> None:
    jobs("pause")
    sweep = ("--gpus=0", "--sweep", "lr=0.1,0.01")
    jobs.add(*sweep, "--name=fit", "--", "true")
    jobs.add(*sweep, "--array=7", "--", "env", "A" * 80)
    jobs.add("--gpus=0", "--sweep", f"file=/{'a' * 80}/one,/{'a' * 80}/two", "--name", "n" * 80, "--", "true")
    titles = [job["title"] for job in json.loads(jobs("list", "--json"))["jobs"]]
    assert titles[:2] == ["fit lr=0.1", "fit lr=0.01"]
    assert [title[: title.index(":")] for title in titles[2:4]] == ["index=7 lr=0.1", "index=7 lr=0.01"]
    assert "env AAAA" in titles[2] and titles[4].startswith("nnnn")
    assert titles[4].endswith("/one") and titles[5].endswith("/two")
    assert max(map(len, titles)) <= 60
    jobs("cancel", "1-6")


def test_sweeps_arrays_and_dependencies(jobs: Jobs) -> None:
    sweep = jobs.add("--gpus=0", "--sweep", "lr=0.1,0.01", "--array", "3-4", "--", "echo", "{lr}", "{index}")
    after = jobs.shell("true", "--gpus=0", "--after", sweep)
    assert jobs.wait(after) == 0
    assert [jobs.log(f"{sweep}.{i}") for i in range(4)] == ["0.1 3\n", "0.01 3\n", "0.1 4\n", "0.01 4\n"]
    assert jobs.machine.run("queue", "log", sweep).returncode == 64
    assert len(jobs.show(after)["after"]) == 4


def test_log_follows_until_the_end(jobs: Jobs) -> None:
    job = jobs.shell("for i in 1 2 3; do echo $i; sleep 0.1; done", "--gpus=0")
    assert jobs("log", "-f", job) == "1\n2\n3\n"


def test_pause_resume_and_drain(jobs: Jobs) -> None:
    running = jobs.shell(jobs.until_go, "--gpus=0")
    wait_until(lambda: jobs.show(running)["state"] == "running")
    drain = jobs.machine.start("queue", "drain")
    wait_until(lambda: "paused" in jobs("list"))
    assert drain.poll() is None
    jobs.go.touch()
    assert drain.wait(60) == 0
    assert jobs.show(running)["state"] == "done"
    waiting = jobs.shell("true", "--gpus=0")
    time.sleep(0.3)
    assert jobs.show(waiting)["state"] == "queued"
    assert "paused" in jobs("list")
    jobs("resume")
    assert jobs.wait(waiting) == 0


def test_memory_that_was_measured_is_proposed(jobs: Jobs) -> None:
    ready = jobs.machine.directory / "ready"
    command = ("/bin/sh", "-c", f"echo $$ > {ready}; while [ -e {ready} ]; do sleep 0.05; done")
    job = jobs.add("--gpus=1", "--", *command)
    wait_until(lambda: ready.exists() and ready.read_text().strip())
    used = f"  process {ready.read_text().strip()} 7000M\n"
    jobs.machine.set(gpus(2, {0: used, 1: ""}))
    wait_until(lambda: jobs.show(job)["attempts"][0]["peak_memory"] > 0)
    ready.unlink()
    assert jobs.wait(job) == 0
    jobs.machine.set(gpus(2))
    assert jobs.show(job)["attempts"][0]["peak_memory"] == 7000 << 20
    again = jobs.machine.run("queue", "add", "--", *command)
    assert "--mem 8G would have been enough" in again.stderr
    auto = jobs.add("--mem", "auto", "--", *command)
    assert jobs.show(auto)["memory"] == 7936 << 20, "the peak and a tenth, in steps of 256 MiB"
    jobs("cancel", again.stdout.strip(), auto)


def test_the_runner_may_be_killed(jobs: Jobs) -> None:
    job = jobs.shell(f"{jobs.until_go}; echo end", "--gpus=0")
    wait_until(lambda: jobs.show(job)["state"] == "running")
    before = jobs.runner()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: jobs.runner() not in (None, before))
    jobs.go.touch()
    assert jobs.wait(job) == 0
    assert jobs.log(job) == "end\n"
    assert len(jobs.show(job)["attempts"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["add"], 64, "needs a command behind --"),
        (["add", "--gpus=0", "--mem=1G", "--", "true"], 64, "--gpus 0 asks for no GPU"),
        (["add", "--gpus=x", "--", "true"], 64, "x"),
        (["add", "--sweep=lr", "--", "true"], 64, "lr=0.1,0.01"),
        (["add", "--array=3-1", "--", "true"], 64, "3-1"),
        (["add", "--after=9", "--", "true"], 66, "there is no job 9"),
        (["add", "--time=soon", "--", "true"], 64, "--time"),
        (["add", "--time=5", "--", "true"], 64, "write 5s, 5m (minutes), 5h or 5d"),
        (["show", "9"], 66, "there is no job 9"),
        (["cancel", "x"], 64, "a job is written as"),
        (["log", "9"], 66, "there is no job 9"),
    ],
)
def test_errors_are_one_line_with_a_code(jobs: Jobs, words: list[str], code: int, text: str) -> None:
    done = jobs.machine.run("queue", *words)
    assert (done.returncode, text in done.stderr) == (code, True), done
    assert done.stdout == ""


def test_a_damaged_database_is_left_as_it_is(jobs: Jobs) -> None:
    jobs("list")
    database = jobs.directory / "queue.db"
    good = database.read_bytes()
    database.write_bytes(b"not a database at all" * 200)
    done = jobs.machine.run("queue", "list")
    assert done.returncode == 73
    assert done.stderr.count("\n") == 1 and "not a queue's database" in done.stderr
    assert database.read_bytes() == b"not a database at all" * 200
    database.write_bytes(good)
    assert jobs("list") == "no jobs\n"


def test_a_cancel_of_an_ended_job_is_refused(jobs: Jobs) -> None:
    failed = jobs.shell("exit 3", "--gpus=0")
    jobs.wait(failed)
    done = jobs.machine.run("queue", "cancel", failed)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"job {failed} has ended: it is failed" in done.stderr
