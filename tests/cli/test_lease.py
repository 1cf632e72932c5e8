"""lease list, hold and release."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Machine, uuid, wait_until


def test_an_empty_list_says_where_it_looked(machine: Machine):
    assert machine.ok("lease", "list") == f"no leases in {machine.leases}\n"
    assert json.loads(machine.ok("lease", "list", "--json")) == {"schema": 1, "leases": [], "waiting": []}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_hold_ends_with_a_signal(machine: Machine, number: signal.Signals):
    process = machine.start("lease", "hold", "--mem", "10G", "--name", "night shift")
    assert process.stdout is not None
    identity, gpus = process.stdout.readline().split()
    assert gpus == uuid(0)
    (lease,) = machine.held()
    assert lease["id"] == identity and lease["job"] == "night shift" and lease["pid"] == process.pid
    assert lease["claims"] == [{"uuid": uuid(0), "gpu": "0", "bytes": 10 << 30}]
    process.send_signal(number)
    assert process.wait(60) == -number
    assert machine.files() == []  # Removed by its holder, not by the next caller.


def test_a_signal_that_comes_before_the_id_is_read_leaves_no_file(machine: Machine):
    reading, writing = os.pipe()
    try:
        capacity = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
        os.write(writing, b"." * capacity)  # The program blocks at the line that names the lease.
        process = machine.start("lease", "hold", "--mem", "10G", stdout=writing)
        wait_until(lambda: catches(process.pid, signal.SIGINT))
        (held,) = machine.files()
        process.send_signal(signal.SIGINT)
        assert os.read(reading, capacity) == b"." * capacity
        assert os.read(reading, 100).startswith(held.removeprefix("l").encode())
        assert process.wait(60) == -signal.SIGINT
        assert machine.files() == []
    finally:
        os.close(reading)
        os.close(writing)


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether this process has a handler for the signal, according to /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def test_hold_ends_in_time(machine: Machine):
    process = machine.start("lease", "hold", "--for", "1s")
    assert process.wait(60) == 0
    assert machine.held() == []


def test_hold_in_the_background(machine: Machine):
    identity, gpus = machine.ok("lease", "hold", "--for", "60s", "--background").split()
    (lease,) = machine.held()
    assert lease["id"] == identity and lease["exclusive"] and gpus == uuid(0)
    assert 50 < lease["expires_in_seconds"] <= 60
    os.kill(lease["pid"], 0)  # The shown process holds the lease.
    assert machine.ok("lease", "release", identity) == ""
    assert machine.held() == []
    wait_until(lambda: not Path(f"/proc/{lease['pid']}").exists())


@pytest.mark.parametrize("time", [(), ("--for", "1h")])
def test_release_ends_a_lease_that_runs(machine: Machine, time: tuple[str, ...]):
    process = machine.start("lease", "hold", *time)
    assert process.stdout is not None
    identity = process.stdout.readline().split()[0]
    machine.ok("lease", "release", identity)
    assert process.wait(60) == 66
    assert "released by somebody else" in process.stderr.read()  # type: ignore[union-attr]


def test_release_of_what_is_not_there(machine: Machine):
    done = machine.run("lease", "release", "0123456789abcdef")
    assert done.returncode == 66 and "0123456789abcdef" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_users_lease_cannot_be_released(machine: Machine):
    identity = machine.ok("lease", "hold", "--for", "60s", "--background").split()[0]
    machine.directory.chmod(0o755)
    if machine.command("test", "-x", PROGRAM, user=65534).returncode != 0:
        pytest.skip("the build directory is not open to other users")
    done = machine.command(PROGRAM, "lease", "release", identity, user=65534)
    assert done.returncode == 77 and "root" in done.stderr, done.stderr
    assert len(machine.held()) == 1


def test_a_waiting_request_is_listed_apart(machine: Machine):
    machine.start("run", "-n2", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    machine.start("pick", "--mem", "5G", "--wait")
    wait_until(lambda: len(machine.files()) == 2)
    listed = json.loads(machine.ok("lease", "list", "--json"))
    assert len(listed["leases"]) == 1
    (place,) = listed["waiting"]
    assert place["gpus_wanted"] == 1 and place["bytes_wanted_each"] == 5 << 30
    text = machine.ok("lease", "list")
    assert "WAITING" in text and "5.0 GiB" in text and "sleep 60" in text


def test_a_time_namespace_ends_no_lease(machine: Machine):
    """In the namespace the machine's clock is days ahead."""
    namespace = [
        "unshare",
        *([] if os.geteuid() == 0 else ["--map-root-user"]),
        "--time",
        "--boottime",
        "400000",
    ]
    if machine.command(*namespace, "true").returncode != 0:
        pytest.skip("no time namespace may be made here")
    machine.start("lease", "hold", "--mem", "10G", "--for", "1h")
    wait_until(lambda: len(machine.held()) == 1)
    (outside,) = machine.held()
    inside = machine.command(*namespace, PROGRAM, "lease", "list", "--json")
    (lease,) = json.loads(inside.stdout)["leases"]
    assert abs(lease["expires_in_seconds"] - outside["expires_in_seconds"]) < 60
    assert machine.command(*namespace, PROGRAM, "run", "--mem", "1G", "--", "true").returncode == 0
    assert len(machine.held()) == 1


@pytest.mark.parametrize(
    "words", [("lease", "hold", "--for", "20s", "--background"), ("pick", "--hold", "20s")]
)
def test_what_stays_behind_keeps_no_lock_of_its_caller(
    machine: Machine, tmp_path: Path, words: tuple[str, ...]
):
    lock = tmp_path / "lock"
    machine.command("flock", lock, PROGRAM, *words, "--mem", "1G", check=True)
    assert len(machine.held()) == 1
    machine.command("flock", "-n", lock, "true", check=True)
