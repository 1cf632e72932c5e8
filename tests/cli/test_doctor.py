"""doctor: it finds and names every fault that a script can cause, with a cure."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

import pytest
from innkeeper_program import Machine, gpus, uuid, wait_until
from repository import ROOT

MIXED = gpus(2, {1: "  name NVIDIA L4\n"})


def findings(machine: Machine, code: int, **env: str) -> dict[str, dict]:  # type: ignore[type-arg]
    """Findings by name; `code` is the expected exit status."""
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
    assert {"driver", "persistence", "gpus", "lease-directory", "foreign", "device-order"} <= set(found)


TROUBLES = [
    ("driver", "error nvmlInit_v2 18\n", {}, "restart the machine"),
    ("driver", "error nvmlInit_v2 9\n", {}, "modprobe"),
    ("driver", "error nvmlInit_v2 4\n", {}, "/dev/nvidia"),
    ("driver", gpus(1), {"INNKEEPER_NVML": "/nowhere/x.so"}, "driver"),
    ("persistence", "slow nvmlInit_v2 1200\n" + gpus(1), {}, "persistenced"),
    ("gpus", "driver 550.54.15\n", {}, "lspci"),
    ("lost-gpu", gpus(2, {1: "  lost\n"}), {}, "gpu-reset"),
    ("mig", gpus(1, {0: "  mig 7\n"}), {}, "nvidia-smi mig"),
    (
        "memory",
        "gpu GPU-1000aaaa\n  bus 00000000:11:00.0\n  error nvmlDeviceGetMemoryInfo 999\n",
        {},
        "whole",
    ),
    ("device-order", MIXED, {}, "CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ("visible", gpus(2), {"CUDA_VISIBLE_DEVICES": "0,7"}, "innkeeper pick"),
    ("visible", gpus(2), {"CUDA_VISIBLE_DEVICES": ""}, "innkeeper pick"),
    ("outer-lease", gpus(1), {"INNKEEPER_LEASE": "0123456789abcdef"}, "unset INNKEEPER_LEASE"),
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


def test_a_gpu_without_memory_of_its_own_is_told(machine: Machine):
    machine.set("gpu GPU-1000aaaa\n  name NVIDIA GB10\n  bus 00000000:11:00.0\n")
    hint = findings(machine, 0)["one-memory"]
    assert hint["grade"] == "hint" and "shares the host's memory" in hint["what"] and "disk:" in hint["cure"]


def test_the_order_is_no_trouble_once_it_is_set(machine: Machine):
    machine.set(MIXED)
    findings(machine, 0, CUDA_DEVICE_ORDER="PCI_BUS_ID")


def test_foreign_memory_on_a_leased_gpu(machine: Machine):
    machine.start("run", "--mem", "1G", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    machine.set(gpus(2, {0: f"  memory 139G 512M 5G\n  process {os.getpid()} 5G\n"}))
    found = findings(machine, 1)["foreign"]
    assert found["grade"] == "trouble" and "5.0 GiB" in found["what"] and str(os.getpid()) in found["what"]


def test_a_directory_that_cannot_be_used(machine: Machine):
    machine.leases.write_text("a file")
    found = findings(machine, 1)
    assert found["lease-directory"]["grade"] == "trouble"
    assert "foreign" not in found  # Without knowledge of leases doctor reports nothing good of them.


def test_a_directory_where_all_may_remove_all(machine: Machine):
    machine.ok("pick")
    machine.leases.chmod(0o777)
    found = findings(machine, 1)["lease-directory"]
    assert "chmod +t" in found["what"]


def test_a_lock_that_is_held(machine: Machine):
    machine.ok("pick")
    with (machine.leases / "alloc.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = findings(machine, 1)["lock"]
    assert "alloc.lock" in found["cure"]


def test_a_lock_that_cannot_be_opened(machine: Machine):
    machine.ok("pick")
    (machine.leases / "alloc.lock").unlink()
    (machine.leases / "alloc.lock").mkdir()
    found = findings(machine, 1)["lock"]
    assert "alloc.lock" in found["what"] and "chmod 1777" in found["cure"]


def test_an_mps_daemon_gives_other_numbers(machine: Machine):
    pipes = machine.directory / "mps"
    pipes.mkdir()
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_VISIBLE_DEVICES": "1"}
    assert "mps" not in findings(machine, 0, **env)
    (pipes / "control").touch()
    found = findings(machine, 0, **env)["mps"]
    assert found["grade"] == "hint" and "UUID" in found["cure"]
    assert "mps" not in findings(machine, 0, **(env | {"CUDA_VISIBLE_DEVICES": uuid(1)}))


def test_a_container_that_does_not_share_the_directory(machine: Machine, tmp_path: Path):
    """test_namespaces.py tries mounted directories."""
    for directory in (machine.directory, tmp_path):
        if directory.stat().st_dev != Path("/").stat().st_dev:
            continue
        leases = directory / "leases"
        found = findings(machine, 1, container="docker", INNKEEPER_LEASE_DIR=str(leases))
        assert f"-v {leases}:{leases}" in found["container"]["cure"]


def test_protected_regular_is_told_where_it_is_on(machine: Machine):
    setting = Path("/proc/sys/fs/protected_regular")  # Exists since Linux 4.19.
    value = int(setting.read_text()) if setting.exists() else 0
    found = findings(machine, 0)
    assert ("protected-regular" in found) == (value > 0)
    if value > 0:
        assert f"is {value}" in found["protected-regular"]["what"]


def test_files_of_dead_leases_are_counted(machine: Machine):
    machine.ok("pick")
    for i in range(101):
        (machine.leases / f"l{i:016x}").write_text("nobody holds this")
    assert findings(machine, 0)["stale-files"]["grade"] == "hint"
    machine.ok("pick")  # Removes the stale files.
    assert findings(machine, 0)["stale-files"]["what"].startswith("0 ")


def test_as_text_the_cure_stands_below(machine: Machine):
    machine.set("error nvmlInit_v2 18\n")
    done = machine.run("doctor")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("trouble"))
    assert lines[at + 1].strip().startswith("cure: ")


def test_gpus_are_named_by_uuid_in_findings(machine: Machine):
    machine.set(gpus(2, {1: "  mig 7\n"}))
    assert uuid(1) in findings(machine, 1)["mig"]["what"]


def test_which_libraries_are_adapted_is_told(machine: Machine):
    directory = ROOT / "python/innkeeper/integrations"
    names = sorted(path.stem for path in directory.glob("*.py") if "\nAFTER" in path.read_text())
    told = findings(machine, 0)["libraries"]
    assert told["grade"] == "good" and told["what"] == "adapters for " + ", ".join(names)
    told = findings(machine, 0, INNKEEPER_LIBRARIES="off")["libraries"]
    assert told["grade"] == "hint" and told["cure"] == "unset INNKEEPER_LIBRARIES"


@pytest.mark.slow
def test_patches_of_pytorch_are_listed(machine: Machine):
    done = machine.run("doctor", "--patches", "--json", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    rows = {row["target"]: row for row in json.loads(done.stdout)["patches"]}
    assert rows["torch.Tensor.__dlpack_device__"]["applied"] and rows["torch.ops.load_library"]["upstream"]
    assert "applied torch.ops.load_library\n" in machine.ok("doctor", "--patches", "--python", sys.executable)


def test_patches_need_a_python(machine: Machine):
    done = machine.run("doctor", "--patches", "--python", "/no/python")
    assert done.returncode == 64 and "/no/python: No such file or directory" in done.stderr
