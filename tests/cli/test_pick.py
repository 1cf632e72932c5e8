"""pick: the chosen GPUs for every form of request, and the result of each refusal."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Machine, gpus, uuid, wait_until

BUSY_FIRST = {0: "  memory 139G 512M 100G\n  utilization 90 0\n  power 600 700\n"}


def test_prints_a_uuid_for_cuda_visible_devices(machine: Machine):
    assert machine.ok("pick") == uuid(0) + "\n"
    assert machine.files() == []  # Nothing is promised.


@pytest.mark.parametrize("words", [("-n", "2"), ("-n2",), ("--gpus", "2"), ("--gpus=2",)])
def test_several_are_separated_by_commas(machine: Machine, words: tuple[str, ...]):
    assert machine.ok("pick", *words) == f"{uuid(0)},{uuid(1)}\n"


@pytest.mark.parametrize("mode", ["free", "ratio", "power", "utilization"])
def test_the_idle_gpu_is_better_in_every_mode(machine: Machine, mode: str):
    machine.set(gpus(2, BUSY_FIRST))
    assert machine.ok("pick", "--mem", "1G", "--by", mode) == uuid(1) + "\n"


def test_modes_differ(machine: Machine):
    hot = {0: "  memory 139G 512M 1G\n  power 10 700\n", 1: "  memory 139G 512M 0\n  power 600 700\n"}
    machine.set(gpus(2, hot))
    assert machine.ok("pick", "--mem", "1G", "--by", "free") == uuid(1) + "\n"
    assert machine.ok("pick", "--mem", "1G", "--by", "power") == uuid(0) + "\n"


def test_leased_gpus_are_not_picked(machine: Machine):
    machine.start("run", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    assert machine.ok("pick") == uuid(1) + "\n"


def test_exclusive_with_memory_is_a_gpu_for_one(machine: Machine):
    first = machine.ok("pick", "--mem", "1G", "--exclusive", "--hold", "60s")
    second = machine.ok("pick", "--mem", "1G", "--exclusive", "--hold", "60s")
    assert {first, second} == {uuid(0) + "\n", uuid(1) + "\n"}
    assert machine.run("pick", "--mem", "1G").returncode == 75


@pytest.mark.slow  # A promise of five seconds must end.
def test_hold_promises_it_for_a_while(machine: Machine):
    first = machine.ok("pick", "--hold", "5s")
    second = machine.ok("pick", "--hold", "5s")
    assert {first, second} == {uuid(0) + "\n", uuid(1) + "\n"}
    assert machine.run("pick").returncode == 75
    wait_until(lambda: machine.run("pick").returncode == 0)


def test_wait_is_served_when_a_lease_ends(machine: Machine):
    machine.set(gpus(1))
    holder = machine.start("run", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    waiting = machine.start("pick", "--wait")
    wait_until(lambda: len(machine.files()) == 2)
    assert waiting.poll() is None
    holder.kill()
    assert waiting.communicate(timeout=60)[0] == uuid(0) + "\n"


def test_wait_has_a_limit(machine: Machine):
    machine.set(gpus(1))
    machine.start("run", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    begin = time.monotonic()
    done = machine.run("pick", "--wait=1s")
    assert done.returncode == 75 and 1 <= time.monotonic() - begin < 60
    assert "waited" in done.stderr and "139.0 GiB" not in done.stdout
    assert len(machine.files()) == 1  # The place in the line is gone.


def test_stays_inside_what_was_given(machine: Machine):
    assert machine.ok("pick", env={"CUDA_VISIBLE_DEVICES": "1"}) == uuid(1) + "\n"
    assert machine.ok("pick", env={"CUDA_VISIBLE_DEVICES": uuid(1)[:12]}) == uuid(1) + "\n"
    assert machine.run("pick", "-n2", env={"CUDA_VISIBLE_DEVICES": "1"}).returncode == 65
    none = machine.run("pick", env={"CUDA_VISIBLE_DEVICES": ""})
    assert none.returncode == 69 and "CUDA_VISIBLE_DEVICES" in none.stderr


def test_mig_instances_are_picked_by_their_own_names(machine: Machine):
    instance = "MIG-11111111-2222-3333-4444-555555555555"
    machine.set(gpus(1, {0: f"  mig 7\ninstance {instance} 1 0\n  memory 20G 0 0\n"}))
    assert machine.ok("pick") == instance + "\n"


def test_a_gpu_that_shares_the_machines_memory_is_granted_whole(machine: Machine):
    """The machine's own use of it (GB10, Jetson) counts as no process's use of the GPU."""
    machine.set(f"gpu {uuid(0)}\n  name NVIDIA GB10\n  bus 00000000:11:00.0\n")
    assert machine.ok("pick") == uuid(0) + "\n"
    assert machine.ok("pick", "--mem", "1G", "--exclusive") == uuid(0) + "\n"
    assert machine.run("pick", "--mem", "4000G").returncode == 65
    machine.ok("lease", "hold", "--for", "1m", "--background")
    assert machine.run("pick", "--mem", "1G").returncode == 75


WRONG = [
    (("pick", "-n", "0"), "expected a number of GPUs from 1 to 64"),
    (("pick", "-n", "65"), "from 1 to 64"),
    (("pick", "-n", "two"), "expected a number of GPUs"),
    (("pick", "--mem", "20X"), "--mem"),
    (("pick", "--mem", ""), "--mem"),
    (("pick", "--mem", "0"), "--mem"),
    (("pick", "--mem"), "--mem"),
    (("pick", "--by", "beauty"), "expected free, ratio, power or utilization"),
    (("pick", "--share"), "--share needs --mem"),
    (("pick", "--mem", "1G", "--share", "--exclusive"), "exclude each other"),
    (("pick", "--wait=soon"), "--wait"),
    (("pick", "--hold", "0s"), "at least 1s"),
    (("pick", "--hold", "-3"), "--hold"),
    (("pick", "--hold", "5"), '--hold: "5" has no unit: write 5s, 5m (minutes), 5h or 5d'),
    (("pick", "--wait=5"), '--wait: "5" has no unit'),
    (("pick", "--mem", "1G", "--mem", "2G"), "--mem"),
    (("pick", "--frobnicate"), "there is no option --frobnicate"),
    (("pick", "GPU-1"), "GPU-1 is not expected here"),
    (("pick", "--wait", "30s"), "a limit is written --wait=30s"),
    (("pick", "--wait", "30"), "a limit is written --wait=30s"),
    (("pick", "--", "true"), "no command behind --"),
    (("run",), "needs a command behind --"),
    (("run", "--"), "needs a command behind --"),
    (("run", "--", ""), "needs a command behind --"),
    (("run", "python", "x.py"), "behind --, as in: innkeeper run --mem 8G -- python"),
    (("run", "--mem", "8G", "python"), "behind --, as in: innkeeper run --mem 8G -- python"),
    (("queue", "add", "python", "x.py"), "behind --, as in: innkeeper queue add --mem 8G -- python"),
    (("lease",), "a subcommand is required: list, hold, release"),
    (("lease", "show"), "there is no command show; there are list, hold, release"),
    (("queue",), "a subcommand is required: add, list"),
    (("queue", "ad"), "there is no command ad; there are add, list"),
    (("slurm",), "a subcommand is required: submit"),
    (("lease", "hold", "--background"), "--background needs --for"),
    (("lease", "hold", "--for", "1y"), "--for"),
    (("lease", "release"), "ID"),
    (("lease", "release", "../../etc/passwd"), "no lease's id"),
    (("status", "--json", "--prometheus"), "exclude each other"),
    (("completion", "tcsh"), "expected bash, zsh or fish"),
    (("top",), "needs a terminal"),
    (("top", "--interval", "0"), "0.5 to 60"),
    (("frob",), "there is no command frob; there are status, top"),
    (("-v",), "there is no option -v"),
    ((), "a subcommand is required: status, top"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[" ".join(words) or "-" for words, _ in WRONG])
def test_a_wrong_command_line_ends_with_64_and_says_why(machine: Machine, words: tuple[str, ...], said: str):
    done = machine.run(*words)
    assert (done.returncode, done.stdout) == (64, "")
    message, _, hint = done.stderr.strip().partition("\n")
    assert said in message and message.startswith("innkeeper")
    assert hint.startswith("Try: innkeeper") and hint.endswith("--help")
    assert machine.files() == []


def test_never_and_not_now_are_told_apart_with_numbers(machine: Machine):
    never = machine.run("pick", "--mem", "200G")
    assert never.returncode == 65 and "200.0 GiB" in never.stderr and "138.5 GiB" in never.stderr
    machine.start("run", "--mem", "100G", "-n2", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    busy = machine.run("pick", "--mem", "50G")
    assert busy.returncode == 75 and "promised 100.0 GiB" in busy.stderr and "--wait" in busy.stderr


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("driver 550.54.15\n", 69, "no GPU"),
        ("error nvmlInit_v2 18\n", 71, "version"),  # Library and kernel have different versions.
        ("error nvmlInit_v2 9\n", 71, ""),  # The kernel's driver is not loaded.
        (gpus(1, {0: "  lost\n"}), 69, "cannot be used"),
    ],
)
def test_no_gpu_and_no_driver_end_differently(machine: Machine, script: str, code: int, said: str):
    machine.set(script)
    for words in (("pick",), ("run", "--", "true"), ("lease", "hold"), ("status",)):
        if "lost" in script and words == ("status",):
            continue  # `status` shows the lost GPU instead of an error.
        done = machine.run(*words)
        assert done.returncode == code, (words, done.stderr)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1


def test_no_library(machine: Machine):
    done = machine.run("pick", env={"INNKEEPER_NVML": "/nowhere/libnvidia-ml.so.1"})
    assert done.returncode == 69 and "/nowhere/libnvidia-ml.so.1" in done.stderr


def test_a_bad_lease_directory(machine: Machine):
    machine.leases.write_text("a file")
    for words in (("pick",), ("run", "--", "true"), ("lease", "list"), ("lease", "release", "0" * 16)):
        done = machine.run(*words)
        assert done.returncode == 73 and str(machine.leases) in done.stderr, words


def test_output_that_cannot_be_written(machine: Machine):
    with Path("/dev/full").open("w") as full:
        for words in (["pick"], ["status"], ["--help"], ["completion", "bash"], ["lease", "list"]):
            done = machine.command(PROGRAM, *words, stdout=full)
            assert done.returncode == 74 and "No space left" in done.stderr


def test_a_broken_pipe_ends_it_quietly(machine: Machine):
    reader = f"{PROGRAM} completion bash | true; {PROGRAM} status --prometheus | head -c 10 >/dev/null"
    assert machine.command("bash", "-c", reader).stderr == ""
