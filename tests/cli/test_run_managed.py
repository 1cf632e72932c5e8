"""run --managed and --nproc: the Python, the module and its words, and the lease for them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Machine, uuid

SHOW = '#!/bin/sh\necho "$0"; for word in "$@"; do echo "[$word]"; done; echo "nodes=$INNKEEPER_NODES"\n'
SHOW += 'echo "lease=$INNKEEPER_LEASE"; echo "gpus=$CUDA_VISIBLE_DEVICES"\n'


def python_in(directory: Path) -> str:
    """A Python that prints how it was started."""
    (directory / "bin").mkdir(parents=True)
    python = directory / "bin" / "python"
    python.write_text(SHOW)
    python.chmod(0o755)
    return str(python)


class Started:
    """Output of such a Python."""

    def __init__(self, text: str) -> None:
        self.python, *lines = text.splitlines()
        self.words = [line[1:-1] for line in lines if line.startswith("[")]
        self.said = dict(line.split("=", 1) for line in lines if not line.startswith("["))


@pytest.fixture
def active(machine: Machine, tmp_path: Path) -> str:
    """The Python of the environment that is active."""
    machine.env["VIRTUAL_ENV"] = str(tmp_path / "venv")
    return python_in(tmp_path / "venv")


def run(machine: Machine, *words: str) -> Started:
    return Started(machine.ok("run", "--managed", *words))


def test_the_python_is_the_named_one_else_the_active_environments(
    machine: Machine, tmp_path: Path, active: str
):
    other = python_in(tmp_path / "other")
    assert run(machine, "train.py").python == active
    assert run(machine, "--python", other, "train.py").python == other
    del machine.env["VIRTUAL_ENV"]
    neither = machine.run("run", "--managed", "train.py")
    assert neither.returncode == 127 and f"no Python beside {PROGRAM}" in neither.stderr
    assert machine.held() == []


@pytest.mark.parametrize(
    ("packages", "alone", "path", "refused"),
    [
        (["pip"], True, None, True),
        (["pip", "distutils-precedence.pth"], True, None, True),
        (["pip", "innkeeper-0.9.dist-info"], True, None, False),
        (["pip", "mine.pth"], True, None, False),  # The file may lead to the package.
        (["pip"], False, None, False),  # The system's packages count too.
        (["pip"], True, "/elsewhere", False),
        ([], True, None, False),  # It lacks pip, unlike environments.
    ],
)
def test_an_active_environment_without_the_package_is_named(
    machine: Machine,
    tmp_path: Path,
    active: str,
    packages: list[str],
    alone: bool,
    path: str | None,
    refused: bool,
):
    venv = tmp_path / "venv"
    (venv / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = {str(not alone).lower()}\n"
    )
    for each in packages:
        (venv / "lib" / "python3.11" / "site-packages" / each).mkdir(parents=True)
    if path is not None:
        machine.env["PYTHONPATH"] = path
    done = machine.run("run", "--managed", "train.py")
    assert done.returncode == (127 if refused else 0)
    assert (f"the active environment {venv} has no innkeeper" in done.stderr) == refused
    assert machine.run("run", "--nproc", "2", "--gpus", "2", "--", "train.py").returncode == 0


def test_or_the_one_beside_the_program(machine: Machine, tmp_path: Path):
    machine.env.pop("VIRTUAL_ENV", None)
    python = python_in(tmp_path)
    program = tmp_path / "bin" / "innkeeper"
    program.write_bytes(PROGRAM.read_bytes())
    program.chmod(0o755)
    done = machine.command(program, "run", "--managed", "train.py", check=True)
    assert Started(done.stdout).python == python


def test_words_reach_the_script_as_they_are(machine: Machine, active: str):
    words = ["train.py", "--gpus", "4", "-n", "--managed", "a b", "", "--", "--mem"]
    assert run(machine, *words).words == ["-m", "innkeeper", *words]
    assert run(machine, "--mem", "8G", "--", *words).words == ["-m", "innkeeper", *words]
    assert run(machine, "-m", "package.train", "-c", "x").words == [
        "-m",
        "innkeeper",
        "-m",
        "package.train",
        "-c",
        "x",
    ]
    assert run(machine, "-c", "print(1)", "-n").words == ["-m", "innkeeper", "-c", "print(1)", "-n"]
    assert run(machine, "-u", "train.py").words == ["-m", "innkeeper", "-u", "train.py"]


def test_it_leases_as_run_does(machine: Machine, active: str):
    one = run(machine, "train.py").said
    assert one["gpus"] == uuid(0) and len(one["lease"]) == 16 and one["nodes"] == ""
    part = run(machine, "-n", "2", "--mem", "8G", "train.py").said
    assert part["gpus"] == f"{uuid(0)},{uuid(1)}" and part["nodes"] == f"auto:{15 << 29}B"
    machine.env["INNKEEPER_NODES"] = "cuda:1GiB,host:2GiB"
    assert run(machine, "--mem", "8G", "train.py").said["nodes"] == "cuda:1GiB,host:2GiB"
    assert machine.held() == []


def test_where_no_gpu_is_requested_none_is_leased(machine: Machine, active: str):
    machine.env["INNKEEPER_NODES"] = "sim:2x1GiB,host:2GiB"
    assert run(machine, "train.py").said["lease"] == ""
    assert run(machine, "--gpus", "1", "train.py").said["gpus"] == uuid(0)  # An explicit request gets one.


def test_where_there_is_no_gpu_it_runs_without(machine: Machine, active: str):
    machine.set("driver 550.54.15\n")
    assert run(machine, "train.py").said["lease"] == ""
    refused = machine.run("run", "--managed", "--mem", "8G", "train.py")
    assert refused.returncode == 69 and "no GPU" in refused.stderr
    assert "without a request the script runs without one" in refused.stderr
    refused = machine.run("run", "--", "train.py")
    assert refused.returncode == 69 and "`innkeeper run --managed SCRIPT` runs a script" in refused.stderr


def test_where_all_gpus_are_hidden_it_runs_without(machine: Machine, active: str):
    machine.env["CUDA_VISIBLE_DEVICES"] = ""
    assert run(machine, "train.py").said["lease"] == ""
    machine.env["CUDA_VISIBLE_DEVICES"] = "GPU-9"  # A GPU that the machine lacks: a mistake, it seems.
    refused = machine.run("run", "--managed", "train.py")
    assert refused.returncode == 69 and "GPU-9" in refused.stderr
    refused = machine.run("run", "--", "train.py")  # It would not run with --managed either.
    assert refused.returncode == 69 and "--managed" not in refused.stderr


def test_processes_have_a_gpu_each(machine: Machine, active: str):
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    plain = Started(machine.ok("run", "--nproc", "2", "--", "train.py", "--nproc", "7"))
    assert plain.words == [*torchrun, "2", "train.py", "--nproc", "7"]
    assert plain.said["gpus"] == f"{uuid(0)},{uuid(1)}" and plain.said["nodes"] == ""
    managed = run(machine, "--nproc", "2", "--mem", "8G", "train.py")
    assert managed.words == ["-m", "innkeeper", *torchrun, "2", "train.py"]
    assert managed.said["gpus"] == f"{uuid(0)},{uuid(1)}" and managed.said["nodes"] == f"auto:{15 << 29}B"
    shared = run(machine, "--nproc", "2", "-n", "1", "--mem", "8G", "train.py")
    assert shared.said["gpus"] == uuid(0) and shared.said["nodes"] == f"auto:{7 << 29}B"
    assert Started(machine.ok("run", "--nproc", "1", "--", "a.py")).words == [*torchrun, "1", "a.py"]
    machine.env["INNKEEPER_NODES"] = "sim:1GiB"
    assert Started(machine.ok("run", "--nproc", "2", "--", "train.py")).said["lease"] == ""


DIES = """
import os, pathlib, signal, sys, time
directory, rank = pathlib.Path(sys.argv[1]), os.environ["LOCAL_RANK"]
(directory / rank).touch()
while len(list(directory.iterdir())) < 2:
    time.sleep(0.01)
if rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_process_ends_all_of_them_and_the_lease(machine: Machine, tmp_path: Path):
    script, directory = tmp_path / "dies.py", tmp_path / "ready"
    script.write_text(DIES)
    directory.mkdir()
    machine.env.pop("INNKEEPER_NODES", None)
    began = time.monotonic()
    done = machine.run("run", "--python", sys.executable, "--nproc", "2", "--", str(script), str(directory))
    assert done.returncode == 1 and "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    assert machine.held() == []
    assert time.monotonic() - began < 60


def test_a_command_is_told_its_budget_too(machine: Machine):
    assert machine.ok("run", "--mem", "8G", "--", "printenv", "INNKEEPER_NODES") == f"auto:{15 << 29}B\n"
    inner = [str(PROGRAM), "run", "--mem", "4G", "--", "printenv", "INNKEEPER_NODES"]
    assert machine.ok("run", "--mem", "8G", "--", *inner) == f"auto:{7 << 29}B\n", "of the part"
    for own in ("auto", "auto:1GiB", "auto:1GiB,disk:/tmp:1GiB", "auto:x", "host:1GiB"):
        machine.env["INNKEEPER_NODES"] = own
        assert machine.ok("run", "--mem", "8G", "--", "printenv", "INNKEEPER_NODES") == f"{own}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--managed"], "needs a script, as in: innkeeper run --managed train.py"),
        (["--managed", "--mem", "8X", "train.py"], "8X"),
        (["--python", "python3", "--", "true"], "--python is for --managed and --nproc"),
        (["--nproc", "2"], "needs a command behind --"),
        (["--nproc", "0", "--", "train.py"], "--nproc"),
        (["--nproc", "2", "--", "python3", "train.py"], 'leave "python3" out'),
        (["--nproc", "2", "--", "/usr/bin/torchrun", "train.py"], "run --nproc 2 -- train.py"),
        (
            ["train.py"],
            "innkeeper run --managed train.py runs it on the managed device; the command goes behind --",
        ),
        (["python", "train.py"], "as in: innkeeper run --mem 8G -- python train.py"),
    ],
)
def test_what_makes_no_sense_is_said(machine: Machine, active: str, words: list[str], says: str):
    done = machine.run("run", *words)
    assert done.returncode == 64 and says in done.stderr
    assert done.stdout == ""
