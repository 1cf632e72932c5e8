"""`innkeeper slurm submit` against a real Slurm of one node, with two fake GPUs in its gres.

Debian: slurm-wlm and munge. Root, since Slurm's daemons want to be and GPUs must be device nodes.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from innkeeper_program import PROGRAM, Machine, gpus, run_command, uuid, wait_until

DAEMONS = ("slurmctld", "slurmd", "munged")
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,defer_batch
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
GresTypes=gpu,shard
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:2,shard:8 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
GRES = """AutoDetect=off
Name=gpu File={directory}/gpu0 Flags=nvidia_gpu_env
Name=gpu File={directory}/gpu1 Flags=nvidia_gpu_env
Name=shard Count=8
"""


def find(program: str) -> str | None:
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def free_ports() -> list[int]:
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """The daemons, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = dict(os.environ) | {"SLURM_CONF": str(directory / "slurm.conf")}
        self.daemons: list[subprocess.Popen[bytes]] = []
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool", "munge"):
            (directory / name).mkdir()
        directory.chmod(0o755)
        for index in range(2):
            os.mknod(directory / f"gpu{index}", 0o666 | 0o020000, os.makedev(1, 3))
        cpus = os.cpu_count()
        (directory / "slurm.conf").write_text(
            CONF.format(directory=directory, host=host, ports=free_ports(), cpus=cpus)
        )
        (directory / "gres.conf").write_text(GRES.format(directory=directory))
        # Nothing here uses control groups, and where none are mounted slurmd must not look for them.
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        key = directory / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        munge = directory / "munge"
        self.start(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        wait_until(lambda: (munge / "socket").exists())
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        wait_until(lambda: "idle" in self.call("sinfo", "-h", "-o", "%t"), 60)

    def start(self, program: str, *words: str) -> None:
        found = find(program)
        assert found is not None
        null = subprocess.DEVNULL
        self.daemons.append(subprocess.Popen([found, *words], env=self.env, stdout=null, stderr=null))

    def call(self, *words: str) -> str:
        return run_command(*words, env=self.env).stdout

    def wait(self, job: str) -> None:
        wait_until(lambda: self.call("squeue", "-h", "-j", job).strip() == "", 60)

    def close(self) -> None:
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if not all(find(daemon) for daemon in DAEMONS):
        pytest.skip("Slurm's daemons are not installed: slurm-wlm and munge")
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons need root")
    directory = Path(tempfile.mkdtemp(prefix="innkeeper-slurm-"))
    try:
        os.mknod(directory / "try", 0o666 | 0o020000, os.makedev(1, 3))
    except OSError:
        shutil.rmtree(directory)
        pytest.skip("no device nodes can be made here for Slurm's GPUs")
    made = Cluster(directory)
    yield made
    made.close()
    shutil.rmtree(directory)


class Submitter:
    """The program, submitting to the cluster."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self.machine, self.cluster = machine, cluster
        machine.env["SLURM_CONF"] = cluster.env["SLURM_CONF"]

    def submit(self, *words: str) -> str:
        output = self.machine.directory / "out-%A-%a"
        return self.machine.ok("slurm", "submit", f"--output={output}", *words).strip()

    def output(self, job: str) -> dict[str, str]:
        """Output by task; a job that is no array has one."""
        self.cluster.wait(job)
        files = self.machine.directory.glob(f"out-{job}-*")
        return {path.name.rpartition("-")[2]: path.read_text() for path in files}


@pytest.fixture
def slurm(machine: Machine, cluster: Cluster, runners: None) -> Submitter:
    return Submitter(machine, cluster)


def test_a_job_gets_its_gpus(slurm: Submitter) -> None:
    one = slurm.submit("--name=one", "--", "sh", "-c", "echo $SLURM_JOB_NAME $CUDA_VISIBLE_DEVICES")
    both = slurm.submit("--gpus=2", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    shard = slurm.submit("--mem=3G", "--shard=1G", "--", "sh", "-c", "echo $SLURM_SHARDS_ON_NODE")
    none = slurm.submit("--gpus=0", "--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]")
    assert next(iter(slurm.output(one).values())) in ("one 0\n", "one 1\n")
    assert list(slurm.output(both).values()) == ["0,1\n"]
    assert list(slurm.output(shard).values()) == ["3\n"]
    assert list(slurm.output(none).values()) == ["[]\n"]


def test_sweeps_and_dependencies(slurm: Submitter) -> None:
    sweep = slurm.submit("--gpus=0", "--sweep=lr=0.1,it's", "--", "sh", "-c", 'echo "$0 $lr"', "{lr}")
    mark = slurm.machine.directory / "mark"
    first = slurm.submit("--gpus=0", "--after", sweep, "--", "touch", str(mark))
    bad = slurm.submit("--gpus=0", "--after", first, "--", "sh", "-c", f"test -e {mark} && exit 1")
    never = slurm.submit("--gpus=0", "--after", bad, "--", "touch", str(mark) + "2")
    always = slurm.submit("--gpus=0", "--after-any", bad, "--", "sh", "-c", "echo end")
    assert list(slurm.output(always).values()) == ["end\n"]
    assert slurm.output(sweep) == {"0": "0.1 0.1\n", "1": "it's it's\n"}
    slurm.cluster.wait(never)
    assert mark.exists() and not Path(str(mark) + "2").exists()


def test_inside_a_job_the_same_call_subdivides_what_slurm_gave(slurm: Submitter) -> None:
    machine = slurm.machine
    machine.set(gpus(2))
    machine.env["TMPDIR"] = str(machine.directory)
    part = f"{PROGRAM} slurm submit -- /bin/sh -c 'echo $CUDA_VISIBLE_DEVICES; sleep 0.2'"
    job = slurm.submit(
        "--gpus=1", "--", "sh", "-c",
        f"echo $CUDA_VISIBLE_DEVICES; {part}; {part}; {PROGRAM} queue wait && {PROGRAM} queue log 1 && "
        f"{PROGRAM} queue log 2",
    )  # fmt: skip
    given, first, second, *logs = next(iter(slurm.output(job).values())).split()
    assert (first, second) == ("1", "2")
    assert logs == [uuid(int(given))] * 2


def test_submitit_asks_in_the_same_words(slurm: Submitter, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    ours = pytest.importorskip("innkeeper.slurm", reason="the package innkeeper is not installed")
    monkeypatch.setenv("SLURM_CONF", slurm.cluster.env["SLURM_CONF"])

    def executor(request: str) -> Any:
        made = submitit.AutoExecutor(slurm.machine.directory / "log", cluster="slurm")
        made.update_parameters(**ours.submitit_parameters(f"{request} --time=5m"))
        return made

    both = executor("--gpus=2 --name=two").submit(os.getenv, "CUDA_VISIBLE_DEVICES")
    after = executor(f"--gpus=0 --after={both.job_id}").submit(os.getenv, "SLURM_JOB_DEPENDENCY")
    name = executor("--gpus=0 --name=three").submit(os.getenv, "SLURM_JOB_NAME")
    assert both.result() == "0,1"
    assert after.result() == f"afterok:{both.job_id}"
    assert name.result() == "three"
