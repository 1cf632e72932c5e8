"""Simulated GPUs of INNKEEPER_NODES without a driver: they are shown, picked, leased and queued for."""

from __future__ import annotations

import json

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
        "INNKEEPER_SIM": "card=H100",
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
