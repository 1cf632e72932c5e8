"""The lease directory's disk is full: it is said with numbers, and no lease is lost or granted twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from innkeeper_program import PROGRAM, Machine, wait_until
from small_disk import fill, small_disk

__all__ = ["small_disk"]


@pytest.fixture
def full(machine: Machine, small_disk: Path) -> Machine:
    """A machine whose lease directory is on the small disk."""
    machine.leases = small_disk / "leases"
    machine.env["INNKEEPER_LEASE_DIR"] = str(machine.leases)
    return machine


def leases(machine: Machine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(machine.ok("lease", "list", "--json"))["leases"]
    return found


def held(machine: Machine) -> list[str]:
    return [lease["id"] for lease in leases(machine)]


def waiting(machine: Machine) -> int:
    return len(json.loads(machine.ok("lease", "list", "--json"))["waiting"])


def test_it_is_refused_with_the_numbers(full: Machine, small_disk: Path) -> None:
    full.start("run", "--", "sleep", "60")
    wait_until(lambda: len(held(full)) == 1)
    before = held(full)
    filler = fill(small_disk)
    for words in (["pick"], ["run", "--", "true"], ["run", "--wait", "--", "true"], ["lease", "hold"]):
        done = full.run(*words)
        assert done.returncode == 73 and done.stderr.count("\n") == 1, (words, done)
        assert "No space left on device (0 B free of 1.0 MiB)" in done.stderr, done.stderr
        assert str(full.leases) in done.stderr
    assert "there is no room for a lease" in (said := full.run("doctor").stdout), said
    assert "(0 B free of 1.0 MiB)" in said
    assert held(full) == before
    names = sorted(path.name for path in full.leases.iterdir())
    assert names == ["alloc.lock", f"l{before[0]}"], "nothing is left behind"
    filler.unlink()
    assert full.run("run", "--", "true").returncode == 0
    assert "no room" not in full.run("doctor").stdout


def test_where_no_more_files_can_be_made_it_says_so(full: Machine, small_disk: Path) -> None:
    full.ok("pick")
    full.command("mount", "-o", "remount,nr_inodes=12", small_disk, check=True)
    for number in range(12):
        try:
            (small_disk / str(number)).touch()
        except OSError:
            break
    done = full.run("pick")
    assert done.returncode == 73 and "(0 of 12 files free)" in done.stderr, done.stderr


def test_a_lease_and_a_place_in_line_are_kept(full: Machine, small_disk: Path, tmp_path: Path) -> None:
    """The space for each change of a record is reserved when the record is made."""
    go = tmp_path / "go"
    first = full.start("run", "--gpus=2", "--", "sh", "-c", f"until test -e {go}; do sleep 0.05; done")
    wait_until(lambda: len(held(full)) == 1)
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}; wait"
    second = full.start("run", "--wait", "--gpus=2", "--", "sh", "-c", script)
    wait_until(lambda: waiting(full) == 1)
    fill(small_disk)
    go.touch()
    assert first.wait(60) == 0
    wait_until(lambda: waiting(full) == 0 and len(held(full)) == 1 and pid.exists() and pid.read_text())
    before = leases(full)
    os.kill(second.pid, signal.SIGKILL)  # The keeper takes the lease over, which changes its record.
    wait_until(lambda: leases(full)[0]["pid"] != before[0]["pid"])
    assert held(full) == [before[0]["id"]]
    os.kill(int(pid.read_text()), signal.SIGKILL)
    wait_until(lambda: held(full) == [])


def test_a_limit_on_files_is_no_end(machine: Machine) -> None:
    """The space for a lease's changes lies beyond the limit."""
    done = machine.command("bash", "-c", f"ulimit -f 4; {PROGRAM} pick && {PROGRAM} run -- true")
    assert done.returncode == 0 and done.stdout, done
