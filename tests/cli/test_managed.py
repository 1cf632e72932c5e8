"""Engines' records as status and top show them. The test writes the records by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from board_file import Board
from innkeeper_program import Machine, gpus

NODE = "node=cuda:0 139586437120 68719476736 137438953472 512 90000\n"
HOST = "node=host 536870912000 107374182400 107374182400 0 12\n"


@pytest.fixture
def board(machine: Machine) -> Iterator[Board]:
    machine.ok("status")  # makes the directory
    made = Board(machine.leases)
    yield made
    made.close()


def test_status_tells_what_managed_devices_hold(machine: Machine, board: Board):
    assert "MANAGED" not in machine.ok("status")
    board.add(os.getpid(), "python train.py", NODE + HOST)
    lines = machine.ok("status").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("MANAGED"))
    assert lines[at + 1].split()[:6] == [str(os.getpid()), "cuda:0", "64.0", "/", "130.0", "GiB"]
    assert "128.0 GiB" in lines[at + 1] and "512" in lines[at + 1] and "python train.py" in lines[at + 1]
    assert lines[at + 2].split()[:4] == ["host", "100.0", "/", "500.0"]
    board.close()
    board.files.clear()
    assert "MANAGED" not in machine.ok("status")  # dead


def test_small_nodes_have_small_units(machine: Machine, board: Board):
    small = f"node=sim:0 {4 << 20} {3 << 20} {4 << 20} 0 1\n"
    mixed = f"node=host {2 << 30} {96 << 10} {1 << 20} 0 1\nnode=disk {8 << 30} 0 0 0 1\n"
    board.add(os.getpid(), "python train.py", small + mixed)
    table = machine.ok("status").partition("MANAGED")[2]
    assert "3.0 / 4.0 MiB" in table and "96.0 KiB / 2.0 GiB" in table and "0 / 8.0 GiB" in table


def test_programs_read_it_too(machine: Machine, board: Board):
    board.add(os.getpid(), 'python "train".py', NODE)
    (resident,) = json.loads(machine.ok("status", "--json"))["managed"]
    assert resident["pid"] == os.getpid() and resident["in_this_pid_namespace"]
    assert resident["command"] == 'python "train".py'
    assert resident["nodes"] == [
        {
            "node": "cuda:0",
            "budget_bytes": 139586437120,
            "resident_bytes": 64 << 30,
            "peak_bytes": 128 << 30,
            "evictions": 512,
            "operators": 90000,
        }
    ]
    metric = f'innkeeper_node_resident_bytes{{pid="{os.getpid()}",user="root",node="cuda:0"}}'
    assert metric.replace('user="root"', f'user="{resident["user"]}"') in machine.ok("status", "--prometheus")


def test_a_number_of_another_namespace_is_marked(machine: Machine, board: Board):
    board.add(7, "python inside.py", NODE, pidns=1)
    text = machine.ok("status")
    assert "7*" in text and "*: the process's number in its container" in text


def test_a_grant_is_not_disturbed(machine: Machine, board: Board):
    board.add(os.getpid(), "python train.py", NODE)
    assert len(machine.ok("pick", "-n", "2").strip().split(",")) == 2
    assert machine.held() == []


def test_garbage_is_passed_over(machine: Machine, board: Board):
    board.add(1, "x", "node=cuda:0 1 2\n")
    board.add(2, "y", "node=bad name 1 2 3 4 5\n")
    board.add(3, "z", "node=host 1 2 3 4 99999999999999999999\n")
    machine.set(gpus(1))
    assert "MANAGED" not in machine.ok("status")
