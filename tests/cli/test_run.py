"""run: the command's life is the lease's; its signals and status are its own."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from innkeeper_program import AMD, PROGRAM, Machine, gpus, uuid, visible, wait_until


def started(machine: Machine, count: int = 1) -> None:
    wait_until(lambda: len(machine.files()) == count)


def test_the_command_sees_its_gpus_alone(machine: Machine):
    machine.set(gpus(4))
    shown = machine.ok("run", "-n", "2", "--mem", "8G", "--", "env")
    seen = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    assert seen["CUDA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}"
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert len(seen["INNKEEPER_LEASE"]) == 16


def test_in_a_machine_of_two_vendors_it_sees_one_s(machine: Machine):
    machine.set(gpus(3))
    machine.add_amd()
    both = ("-n", "2", "--mem", "8G")
    amd = ["CUDA ", "HIP 0,1", "ROCR " + ",".join(AMD)]
    assert visible(machine.ok("run", *both, "--", "env")) == amd
    assert visible(machine.ok("run", *both, "--", "env", env={"HIP_VISIBLE_DEVICES": "1,0"})) == amd
    nvidia = ["CUDA " + ",".join(uuid(i) for i in range(3)), "ROCR "]
    assert visible(machine.ok("run", "-n", "3", "--mem", "8G", "--", "env")) == nvidia
    only = machine.ok("run", "--", "env", env={"ROCR_VISIBLE_DEVICES": ""})
    assert visible(only) == ["CUDA " + uuid(0), "ROCR "]
    # The command's children find the same GPUs.
    inner = machine.ok("run", *both, "--", str(PROGRAM), "pick", "-n", "2", "--mem", "1G")
    assert inner == ",".join(AMD) + "\n"
    refused = machine.run("pick", "-n", "4", "--mem", "8G")
    assert "not so many have that even when idle (of one vendor, who has 3)" in refused.stderr
    refused = machine.run("pick", env={"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""})
    assert "CUDA_VISIBLE_DEVICES,ROCR_VISIBLE_DEVICES gives this process no GPU" in refused.stderr


def test_words_reach_the_command_as_they_are(machine: Machine):
    words = ["a b", "--", "--mem", "-n", "$HOME", "", "*"]
    script = "import sys; print(sys.argv[1:])"
    assert machine.ok("run", "--", sys.executable, "-c", script, *words) == f"{words}\n"


@pytest.mark.parametrize("status", [0, 1, 2, 75, 255])
def test_the_status_is_the_commands(machine: Machine, status: int):
    assert machine.run("run", "--", "sh", "-c", f"exit {status}").returncode == status
    assert machine.held() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(machine: Machine, number: signal.Signals):
    script = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    process = machine.start("run", "--", sys.executable, "-c", script)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(60) == 42
    assert machine.held() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_that_kills_the_command_ends_the_lease(machine: Machine, number: signal.Signals):
    process = machine.start("run", "--", "sleep", "60")
    started(machine)
    assert len(machine.held()) == 1
    process.send_signal(number)
    assert process.wait(60) == -number
    wait_until(lambda: machine.held() == [])
    assert machine.ok("pick", "-n2") == f"{uuid(0)},{uuid(1)}\n"  # All GPUs are free again.
    wait_until(lambda: machine.files() == [])


def test_a_stopped_command_keeps_its_lease(machine: Machine):
    process = machine.start("run", "--", "sleep", "60")
    started(machine)
    process.send_signal(signal.SIGSTOP)
    assert len(machine.held()) == 1
    process.send_signal(signal.SIGKILL)


def test_what_it_leaves_behind_keeps_the_lease(machine: Machine):
    pid = int(machine.ok("run", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"))
    assert len(machine.held()) == 1
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: machine.held() == [])


def test_signal_dispositions_are_passed_on_unchanged(machine: Machine):
    masks = machine.ok("run", "--", "grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status")
    assert masks == machine.command("grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status").stdout


def test_only_the_lease_is_left_open(machine: Machine):
    shown = machine.ok("run", "--", "ls", "-l", "/proc/self/fd")
    assert shown.count(str(machine.leases)) == 1 and "alloc.lock" not in shown


def test_a_gpu_outside_of_the_lease_is_refused_by_its_name(machine: Machine):
    """The error names the variable with which a script chose a GPU itself, and the lease's GPUs."""
    machine.start("run", "--", "sleep", "60")  # holds GPU 0
    wait_until(lambda: len(machine.held()) == 1)
    script = machine.directory / "script.sh"
    script.write_text(
        f"#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0\n{PROGRAM} pick; echo $?\n"
        f"{PROGRAM} run -- true; echo $?\n{PROGRAM} pick -n 2; echo $?\n"
    )
    script.chmod(0o755)
    done = machine.run("run", "--", str(script))
    assert done.stdout.split() == ["65"] * 3
    refusals = [line for line in done.stderr.splitlines() if "asked for" in line]
    assert len(refusals) == 3
    held = re.compile(r"the lease (\w+), in which this runs, holds " + uuid(1))
    (lease,) = {held.search(line)[1] for line in refusals}  # type: ignore[index]
    assert len(lease) == 16
    for line in refusals:
        assert f"CUDA_VISIBLE_DEVICES gives {uuid(0)}: unset it, or name a GPU of the lease" in line


def test_a_run_inside_a_run_gets_a_part(machine: Machine):
    inner = f"{PROGRAM} run --mem 2G -- {PROGRAM} lease list --json"
    import json

    leases = json.loads(machine.ok("run", "--mem", "8G", "--", "sh", "-c", inner))["leases"]
    outer, part = leases
    assert part["inside"] == outer["id"]
    assert part["claims"][0]["uuid"] == outer["claims"][0]["uuid"]
    too_much = machine.run("run", "--mem", "8G", "--", str(PROGRAM), "pick", "--mem", "9G")
    assert too_much.returncode == 65


def test_a_part_of_a_lease_that_is_over(machine: Machine):
    done = machine.run("run", "--", "true", env={"INNKEEPER_LEASE": "0123456789abcdef"})
    assert done.returncode == 66 and "0123456789abcdef" in done.stderr


def test_a_command_that_cannot_run(machine: Machine, tmp_path: Path):
    missing = machine.run("run", "--", "no-such-command")
    assert missing.returncode == 127 and "no-such-command" in missing.stderr
    plain = tmp_path / "plain"
    plain.write_text("text")
    assert machine.run("run", "--", str(plain)).returncode == 126
    assert machine.held() == []


def test_many_at_once_never_share_an_exclusive_gpu(machine: Machine):
    machine.set(gpus(4))
    mark = f"{machine.directory}/busy-$CUDA_VISIBLE_DEVICES"
    script = f"mkdir {mark} && sleep 0.05 && rmdir {mark}"
    jobs = [machine.start("run", "--wait", "--", "sh", "-c", script) for _ in range(24)]
    for job in jobs:
        assert job.wait(60) == 0
