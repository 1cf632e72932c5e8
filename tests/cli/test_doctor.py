"""doctor: every trouble that can be scripted is found, named and comes with a cure. And calibrate."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from conftest import Machine, cards, uuid, wait_until

MIXED = cards(2, {1: "  name NVIDIA L4\n"})


def findings(machine: Machine, code: int, **env: str) -> dict[str, dict]:  # type: ignore[type-arg]
    """By name; `code` is the exit status that is expected."""
    done = machine.run("doctor", "--json", env=env)
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == 1
    for finding in document["findings"]:
        assert list(finding) == ["grade", "name", "what", "cure"]
        assert finding["grade"] in ("good", "hint", "trouble") and finding["what"]
        assert (finding["cure"] is None) == (finding["grade"] == "good"), finding
        assert "\n" not in finding["what"] + (finding["cure"] or "")
    return {finding["name"]: finding for finding in document["findings"]}


def test_a_good_machine_has_no_trouble(machine: Machine):
    found = findings(machine, 0)
    assert all(finding["grade"] != "trouble" for finding in found.values())
    assert {"driver", "persistence", "cards", "lease-folder", "foreign", "device-order"} <= set(found)


TROUBLES = [
    ("driver", "error nvmlInit_v2 18\n", {}, "restart the machine"),
    ("driver", "error nvmlInit_v2 9\n", {}, "modprobe"),
    ("driver", "error nvmlInit_v2 4\n", {}, "/dev/nvidia"),
    ("driver", cards(1), {"INNKEEPER_NVML": "/nowhere/x.so"}, "driver"),
    ("persistence", "slow nvmlInit_v2 1200\n" + cards(1), {}, "persistenced"),
    ("cards", "driver 550.54.15\n", {}, "lspci"),
    ("lost-card", cards(2, {1: "  lost\n"}), {}, "gpu-reset"),
    ("mig", cards(1, {0: "  mig 7\n"}), {}, "nvidia-smi mig"),
    (
        "memory",
        "card GPU-1000aaaa\n  bus 00000000:11:00.0\n  error nvmlDeviceGetMemoryInfo 999\n",
        {},
        "whole",
    ),
    ("device-order", MIXED, {}, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ("visible", cards(2), {"CUDA_VISIBLE_DEVICES": "0,7"}, "innkeeper pick"),
    ("visible", cards(2), {"CUDA_VISIBLE_DEVICES": ""}, "innkeeper pick"),
    ("outer-lease", cards(1), {"INNKEEPER_LEASE": "0123456789abcdef"}, "unset INNKEEPER_LEASE"),
]


@pytest.mark.parametrize(
    ("name", "script", "env", "cure"), TROUBLES, ids=[f"{row[0]}-{i}" for i, row in enumerate(TROUBLES)]
)
def test_trouble_is_named_with_its_cure(
    machine: Machine, name: str, script: str, env: dict[str, str], cure: str
):
    machine.set(script)
    found = findings(machine, 1, **env)
    assert found[name]["grade"] == "trouble" and cure in found[name]["cure"], found[name]


def test_the_order_is_no_trouble_once_it_is_set(machine: Machine):
    machine.set(MIXED)
    findings(machine, 0, CUDA_DEVICE_ORDER="PCI_BUS_ID")


def test_foreign_memory_on_a_leased_card(machine: Machine):
    machine.start("run", "--mem", "1G", "--", "sleep", "60")
    wait_until(lambda: len(machine.files()) == 1)
    machine.set(cards(2, {0: f"  memory 139G 512M 5G\n  process {os.getpid()} 5G\n"}))
    found = findings(machine, 1)["foreign"]
    assert found["grade"] == "trouble" and "5.0 GiB" in found["what"] and str(os.getpid()) in found["what"]


def test_a_folder_that_cannot_be_used(machine: Machine):
    machine.leases.write_text("a file")
    assert findings(machine, 1)["lease-folder"]["grade"] == "trouble"


def test_a_folder_where_all_may_remove_all(machine: Machine):
    machine.ok("pick")
    machine.leases.chmod(0o777)
    found = findings(machine, 1)["lease-folder"]
    assert "chmod +t" in found["what"]


def test_a_lock_that_is_held(machine: Machine):
    machine.ok("pick")
    with (machine.leases / "alloc.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = findings(machine, 1)["lock"]
    assert "alloc.lock" in found["cure"]


def test_files_of_dead_leases_are_counted(machine: Machine):
    machine.ok("pick")
    for i in range(101):
        (machine.leases / f"l{i:016x}").write_text("nobody holds this")
    assert findings(machine, 0)["stale-files"]["grade"] == "hint"
    machine.ok("pick")  # which removes them
    assert findings(machine, 0)["stale-files"]["what"].startswith("0 ")


def test_as_text_the_cure_stands_below(machine: Machine):
    machine.set("error nvmlInit_v2 18\n")
    done = machine.run("doctor")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("trouble"))
    assert lines[at + 1].strip().startswith("cure: ")


def calibrated(machine: Machine, *words: str) -> dict:  # type: ignore[type-arg]
    return json.loads(machine.ok("calibrate", "--json", *words))


def test_calibrate_measures_and_keeps_its_figures(machine: Machine, tmp_path: Path):
    figures = calibrated(machine, "--size", "16MiB", "--disk", str(tmp_path))
    assert figures["schema"] == 1 and figures["size_bytes"] == 16 << 20
    host, disk = figures["host"], figures["disk"]
    assert host["threads"] == len(os.sched_getaffinity(0))
    assert 1e5 < host["copy_one_thread"] < 1e13 and 1e5 < host["copy_all_threads"] < 1e13
    assert disk["folder"] == str(tmp_path.resolve()) and isinstance(disk["direct"], bool)
    assert 1e3 < disk["write"] < 1e12 and 1e3 < disk["read"] < 1e12 and 0 < disk["latency_seconds"] < 5
    assert list(tmp_path.iterdir()) == []  # nothing is left on the disk
    kept = machine.folder / "cache" / "innkeeper" / "calibration.json"
    assert json.loads(kept.read_text()) == figures
    assert calibrated(machine, "--show") == figures
    assert "GB/s" in machine.ok("calibrate", "--show")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--size", "1B"), 64),
        (("--size", "much"), 64),
        (("--size", "100T"), 64),
        (("--disk", "/no/such/folder"), 73),
        (("--show",), 73),
    ],
)
def test_calibrate_refuses(machine: Machine, words: tuple[str, ...], code: int):
    done = machine.run("calibrate", *words)
    assert (done.returncode, done.stdout) == (code, "") and done.stderr


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "host": 3, "disk": {}}']
)
def test_figures_that_are_none(machine: Machine, text: str):
    kept = machine.folder / "cache" / "innkeeper" / "calibration.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    done = machine.run("calibrate", "--show")
    assert done.returncode == 73 and str(kept) in done.stderr


def test_cards_are_named_by_uuid_in_findings(machine: Machine):
    machine.set(cards(2, {1: "  mig 7\n"}))
    assert uuid(1) in findings(machine, 1)["mig"]["what"]
