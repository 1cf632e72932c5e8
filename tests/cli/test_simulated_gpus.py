"""Simulated GPUs of INNKEEPER_NODES without a driver: shown, picked, leased and queued for."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from innkeeper_program import Jobs, Machine, wait_until

FIRST, SECOND = (f"GPU-51300000-0000-4000-8000-00000000000{n}" for n in range(2))


@pytest.fixture
def simulated(machine: Machine) -> Machine:
    """A machine without a driver."""
    machine.env |= {
        "INNKEEPER_NVML": "/nowhere",
        "INNKEEPER_AMDSMI": "/nowhere",
        "INNKEEPER_NODES": "sim:2x64MiB,host:1GiB",
        "INNKEEPER_SIM": "gpu=H100",
    }
    return machine


def test_status_and_doctor_say_what_they_are(simulated: Machine) -> None:
    assert simulated.run("status").stdout.splitlines()[0] == "2 GPUs, simulated, 0 leases, 0 waiting"
    report = json.loads(simulated.run("status", "--json").stdout)
    seen = [(gpu["uuid"], gpu["name"]) for gpu in report["gpus"]]
    assert seen == [(FIRST, "simulated H100"), (SECOND, "simulated H100")]
    assert report["driver"]["works"] is False
    said = simulated.run("doctor").stdout
    assert "there is none, and INNKEEPER_NODES names 2 simulated GPUs" in said
    simulated.env["INNKEEPER_NODES"] = "host:1GiB"
    assert simulated.run("pick").returncode not in (0, 75)


def test_they_are_picked_and_leased_as_others_are(simulated: Machine) -> None:
    assert simulated.ok("pick") == f"{FIRST}\n"
    simulated.start("run", "--", "sleep", "60")
    wait_until(lambda: len(simulated.held()) == 1)
    assert simulated.ok("pick") == f"{SECOND}\n"
    shown = simulated.ok(
        "run", "--mem", "16M", "--", "/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES $INNKEEPER_NODES"
    )
    assert shown == f"{SECOND} sim:2x64MiB,host:1GiB\n"
    refused = simulated.run("run", "--mem", "1G", "--", "true")
    assert refused.returncode != 0 and "64.0 MiB" in refused.stderr
    assert simulated.run("pick", "-n", "2").returncode == 75


def test_jobs_wait_for_them(simulated: Machine, jobs: Jobs) -> None:
    both = jobs.shell("echo $CUDA_VISIBLE_DEVICES", "--gpus=2")
    one = jobs.shell("echo $CUDA_VISIBLE_DEVICES", "--mem=16M")
    assert jobs.wait(both, one) == 0
    assert jobs.log(both) == f"{FIRST},{SECOND}\n" and jobs.log(one).strip() in (FIRST, SECOND)


USE = """
import os, sys
if len(sys.argv) > 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
import innkeeper, torch
print(innkeeper.where(torch.ones(3, device="managed")))
"""


@pytest.mark.slow
@pytest.mark.parametrize("managed", [True, False])
def test_a_job_uses_none_that_it_did_not_lease(simulated: Machine, tmp_path: Path, managed: bool) -> None:
    """For any setting of CUDA_VISIBLE_DEVICES: another lease may hold the GPU that it names."""
    script = tmp_path / "use.py"
    script.write_text(USE)
    python = ["--managed", "--python", sys.executable] if managed else []
    command = [str(script)] if managed else ["--", sys.executable, str(script)]
    simulated.start("run", "--gpus", "1", "--", "sleep", "60")
    wait_until(lambda: len(simulated.held()) == 1)
    for chosen in ([], [SECOND]):
        assert simulated.ok("run", *python, "--gpus", "1", *command, *chosen) == "['sim:1']\n"
    for chosen, used in (("0", "sim:0"), (FIRST, "sim:0"), ("0,1", "sim:0")):
        done = simulated.run("run", *python, "--gpus", "1", *command, chosen)
        assert done.returncode == 1 and done.stdout == "", done.stdout
        said = done.stderr.splitlines()[-1]
        assert f'in which this runs, holds {SECOND}; with CUDA_VISIBLE_DEVICES="{chosen}" ' in said
        assert f"this process would use {used}: leave the variable as it was set for the lease" in said


@pytest.mark.slow
def test_a_job_may_configure_nodes_of_its_own(simulated: Machine) -> None:
    code = """
import os
del os.environ["CUDA_VISIBLE_DEVICES"]
import innkeeper
innkeeper.configure("sim:4x1MiB,host:1GiB")
print(len(innkeeper.stats()["nodes"]))
"""
    assert simulated.ok("run", "--gpus", "1", "--", sys.executable, "-c", code) == "5\n"


def test_nodes_that_cannot_be_read_are_told(simulated: Machine) -> None:
    simulated.env["INNKEEPER_NODES"] = "sim:2x64mb"
    line = r'INNKEEPER_NODES: "sim:2x64mb": size "64mb" has the unknown unit "mb", expected [^;]*\n'
    for words in (["status"], ["pick"], ["run", "--gpus", "1", "--", "true"]):
        said = simulated.run(*words)
        assert re.search("^innkeeper( [a-z ]+)?: " + line, said.stderr, re.MULTILINE), said.stderr
        assert said.returncode == 78, words
    said = simulated.run("doctor")
    assert re.search(line, said.stdout) and "cure: correct INNKEEPER_NODES, or unset it" in said.stdout


@pytest.mark.slow
def test_a_misspelt_setting_is_told_once(simulated: Machine) -> None:
    simulated.env["INNKEEPER_LEASEDIR"] = "/nowhere"
    told = "innkeeper: INNKEEPER_LEASEDIR is set, and no setting: INNKEEPER_LEASE_DIR is one\n"
    assert simulated.run("status").stderr == told
    job = ["--python", sys.executable, "-c", "import torch; torch.ones(1, device='cuda')"]
    said = simulated.run("run", "--managed", *job).stderr
    assert said.count("INNKEEPER_LEASEDIR") == 1


def test_managed_scripts_need_no_word_python(simulated: Machine) -> None:
    done = simulated.run("run", "--managed", "--python", sys.executable, "python", "train.py")
    assert done.returncode == 64
    assert 'leave "python" out, as in: innkeeper run --managed train.py' in done.stderr
    done = simulated.run("run", "--managed", "--python", sys.executable, "--", sys.executable, "train.py")
    assert done.returncode == 64
    assert f'leave "{sys.executable}" out' in done.stderr
