"""Choosing and leasing simulated GPUs without a driver, each program in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from processes import RunProgram

UUIDS = [f"GPU-51300000-0000-4000-8000-{n:012x}" for n in range(3)]
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run(run_program: RunProgram, tmp_path: Path) -> Run:
    """Runs Python without a driver, with two simulated GPUs and leases of the test's own."""

    def python(*words: str, **environment: str) -> CompletedProcess[str]:
        given = os.environ | {
            "INNKEEPER_NVML": "/nowhere",
            "INNKEEPER_AMDSMI": "/nowhere",
            "INNKEEPER_LEASE_DIR": str(tmp_path / "leases"),
            "INNKEEPER_NODES": "sim:2x64MiB,host:256MiB",
            "INNKEEPER_LOG": "warn",
        }
        for name in ("CUDA_VISIBLE_DEVICES", "INNKEEPER_LEASE", "INNKEEPER_LEASE_FD"):
            given.pop(name, None)
        done = run_program(sys.executable, *words, env=given | environment)
        assert done.returncode == 0, done.stderr
        return done

    return python


def test_choices_are_nodes_of_the_device(run: Run) -> None:
    code = """
import innkeeper, os, torch
from innkeeper import LeaseBusy, auto_choice, gpus
print([(gpu.uuid, gpu.memory_total >> 20, gpu.memory_free >> 20, gpu.power) for gpu in gpus.gpus()])
first, second = auto_choice(), auto_choice(memory=32 << 20)
print(first.uuids, second.uuids, first.devices, os.environ["CUDA_VISIBLE_DEVICES"])
with second as gpu:
    x = torch.ones(1000, device=gpu.device)
    print(innkeeper.where(x), gpu.ordinals)
print(innkeeper.where(torch.ones(1000, device="managed")))
try:
    auto_choice(memory=1 << 30)
except ValueError as error:
    print("64.0 MiB" in str(error))
with innkeeper.GPUManager().auto_choice(n=2) as both:
    print(both.ordinals, both.device)
"""
    said = run("-c", code).stdout.splitlines()
    assert said == [
        str([(uuid, 64, 64, None) for uuid in UUIDS[:2]]),
        f"['{UUIDS[0]}'] ['{UUIDS[1]}'] [device(type='managed', index=0)] {UUIDS[0]},{UUIDS[1]}",
        "['sim:1'] [1]",
        *("['sim:0']", "True", "[0, 1] managed:0"),
    ]


def test_what_was_chosen_before_the_first_use_is_all_the_device_has(run: Run) -> None:
    code = """
import innkeeper, torch
kept = innkeeper.auto_choice(uuids=[innkeeper.gpus.gpus()[1].uuid])
print(list(innkeeper.manager().nodes), kept.ordinal)
kept.release()
again = innkeeper.auto_choice()
print(again.uuids == kept.uuids, again.ordinal)
"""
    assert run("-c", code).stdout.splitlines() == ["['sim:1', 'host'] 0", "True 0"]


def test_a_choice_starts_nothing_and_what_started_is_named(run: Run) -> None:
    code = """
import innkeeper, torch
from innkeeper import auto_choice
second = innkeeper.gpus.gpus()[1].uuid
with auto_choice():
    pass
with auto_choice(uuids=[second]) as gpu:
    print(gpu.ordinal, innkeeper.where(torch.ones(1, device=gpu.device)))
for wanted in ({"n": 2}, {"uuids": [innkeeper.gpus.gpus()[0].uuid]}):
    try:
        auto_choice(**wanted)
    except ValueError as error:
        print(str(error).rpartition(". ")[2])
"""
    assert run("-c", code).stdout.splitlines() == [
        "0 ['sim:1']",
        *["The managed device was started with sim:1 alone"] * 2,
    ]


def test_leases_hold_between_processes(run: Run) -> None:
    code = """
import innkeeper, subprocess, sys
held = innkeeper.lease(memory=48 << 20)
print(held.uuids, flush=True)
child = '''
import innkeeper
print(innkeeper.auto_choice(memory=32 << 20).uuids)
try:
    innkeeper.auto_choice(memory=60 << 20, n=2)
except innkeeper.LeaseBusy:
    print("busy")
'''
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""
    assert run("-c", code).stdout.splitlines() == [f"['{UUIDS[0]}']", f"['{UUIDS[1]}']", "busy"]


def test_scripts_by_run_managed_see_what_they_chose_as_cuda_0(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import innkeeper, torch
gm = innkeeper.GPUManager()
with gm.auto_choice(key=lambda gpu: gpu.index) as gpu:
    x = torch.ones(10, device=gpu.device)
    print(gpu.device, x.device, innkeeper.where(x), torch.cuda.device_count())
"""
    )
    assert run("-m", "innkeeper", str(script)).stdout == "cuda:0 cuda:0 ['sim:1'] 1\n"
    listed = run("-m", "innkeeper", "-c", "import torch; print(torch.cuda.device_count())")
    assert listed.stdout == "2\n"


def test_they_are_not_there_beside_a_setting_without_them(run: Run) -> None:
    code = """
import innkeeper
print(innkeeper.gpus.gpus())
try:
    innkeeper.auto_choice()
except RuntimeError as error:
    print(str(error)[:18])
print(innkeeper.auto_choice(fallback="cpu").device)
"""
    for nodes in ("host:64MiB", "sim:2xmuch", ""):
        said = run("-c", code, INNKEEPER_NODES=nodes).stdout.splitlines()
        assert said == ["[]", "no GPU can be seen", "cpu"], nodes
