"""A running program's record for `innkeeper top`: a file in the lease directory during its life."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import StartProgram

PROGRAM = """
import sys, torch, innkeeper
innkeeper.configure("sim:1x9MiB,host:64MiB")
x = torch.ones(1 << 20, device="managed")
y = [x + i for i in range(4)]
print("ready", flush=True)
sys.stdin.readline()
innkeeper.evict(x)
del y
print("less", flush=True)
sys.stdin.readline()
"""


def nodes(directory: Path) -> dict[str, list[int]]:
    """Budget, resident, peak, evictions and operators by node, of the one process with a record."""
    files = [file for file in directory.iterdir() if file.name.startswith("r")]
    assert len(files) <= 1, files
    rows = {}
    for file in files:
        for line in file.read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "node":
                name, *numbers = value.split()
                rows[name] = [int(number) for number in numbers]
    return rows


def wait_for(directory: Path, node: str, resident: int) -> list[int]:
    end = time.monotonic() + 30
    while nodes(directory).get(node, [0, -1])[1] != resident:
        assert time.monotonic() < end, nodes(directory)
        time.sleep(0.02)
    return nodes(directory)[node]


@pytest.fixture
def start(start_program: StartProgram) -> StartProgram:
    """Starts a program whose lease directory is this one."""

    def started(directory: Path, program: str = PROGRAM) -> subprocess.Popen[str]:
        env = os.environ | {"INNKEEPER_LEASE_DIR": str(directory)}
        return start_program(sys.executable, "-c", program, env=env)

    return started


def say(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == expected


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_program_shows_what_is_resident_until_it_ends(start: StartProgram, tmp_path: Path):
    process = start(tmp_path)
    say(process, "ready")
    budget, _, peak, evictions, operators = wait_for(tmp_path, "sim:0", 8 << 20)
    assert budget == 9 << 20 and 8 << 20 <= peak <= budget
    assert evictions == 3  # A node that holds two got five tensors of 4 MiB.
    assert operators >= 5
    wait_for(tmp_path, "host", 12 << 20)
    go_on(process)
    say(process, "less")
    wait_for(tmp_path, "sim:0", 0)
    wait_for(tmp_path, "host", 4 << 20)
    go_on(process)
    assert process.wait(30) == 0
    assert nodes(tmp_path) == {}


def test_without_a_lease_directory_none_is_made(start: StartProgram, tmp_path: Path):
    directory = tmp_path / "leases"
    process = start(directory)
    say(process, "ready")
    go_on(process)
    say(process, "less")
    go_on(process)
    assert process.wait(30) == 0
    assert not directory.exists()


def test_a_forked_child_ends_without_its_parents_file(start: StartProgram, tmp_path: Path):
    fork = """
import os
child = os.fork()
if child == 0:
    sys.exit(0)  # runs what is registered for the end
print(os.waitpid(child, 0)[1], flush=True)
sys.stdin.readline()
"""
    process = start(tmp_path, PROGRAM.replace('print("less', fork + 'print("less'))
    say(process, "ready")
    wait_for(tmp_path, "sim:0", 8 << 20)
    go_on(process)
    say(process, "0")
    wait_for(tmp_path, "sim:0", 0)
