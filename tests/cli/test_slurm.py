"""`innkeeper slurm submit`: the arguments that it passes to sbatch; a fake sbatch records them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from innkeeper_program import Machine, gpus, uuid, wait_until

SBATCH = """#!/bin/sh
printf '%s\\n' "$@" > {directory}/words
cat > {directory}/script
[ -z "$FAIL" ] || {{ echo "sbatch: error: $FAIL" >&2; exit 3; }}
echo "4711;cluster"
"""


class Submitter:
    """The program with a fake sbatch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bin = machine.directory / "bin"
        self.bin.mkdir()
        sbatch = self.bin / "sbatch"
        sbatch.write_text(SBATCH.format(directory=machine.directory))
        sbatch.chmod(0o755)
        machine.env["PATH"] = f"{self.bin}:/usr/bin:/bin"
        for name in [name for name in machine.env if name.startswith("SLURM_")]:
            del machine.env[name]

    def submit(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.machine.run("slurm", "submit", *words)

    def words(self, *words: str) -> list[str]:
        """Output of sbatch for a successful submission."""
        done = self.submit(*words)
        assert (done.returncode, done.stdout) == (0, "4711\n"), done
        return (self.machine.directory / "words").read_text().splitlines()

    def script(self) -> Path:
        return self.machine.directory / "script"

    def run_script(self, task: int | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the script as Slurm would."""
        env = {"PATH": "/usr/bin:/bin"} | ({} if task is None else {"SLURM_ARRAY_TASK_ID": str(task)})
        return self.machine.command("/bin/sh", self.script(), env=env)


@pytest.fixture
def submitter(machine: Machine) -> Submitter:
    return Submitter(machine)


def test_a_request_becomes_sbatch_options(submitter: Submitter) -> None:
    words = submitter.words(
        "--gpus=2", "--time=90s", "--name=demo", "-C", "/usr", "--", "echo", "a b", "it's", "$x"
    )
    assert words == ["--parsable", "--chdir=/usr", "--job-name=demo", "--gres=gpu:2", "--time=2"]
    assert submitter.run_script().stdout == "a b it's $x\n"


def test_jobs_without_gpus_dependencies_and_own_options(submitter: Submitter) -> None:
    words = submitter.words(
        "--gpus=0", "--cpus=4", "--after=12,13_2", "--after-any=9", "--priority=-2",
        "--sbatch=--partition=long", "--output=out-%j", "--", "true",
    )  # fmt: skip
    assert words[3:] == [
        "--cpus-per-task=4",
        "--nice=200",
        "--dependency=afterok:12,afterok:13_2,afterany:9",
        "--kill-on-invalid-dep=yes",
        "--output=out-%j",
        "--partition=long",
    ]


def test_memory_becomes_shards_where_their_size_is_known(submitter: Submitter) -> None:
    assert "--gres=shard:5" in submitter.words("--mem=9G", "--shard=2G", "--", "true")
    done = submitter.submit("--mem=9G", "--", "true")
    assert "--gres=gpu:1" in (submitter.machine.directory / "words").read_text()
    assert "whole on Slurm" in done.stderr
    assert "--gres=gpu:1" in submitter.words("--mem=9G", "--exclusive", "--shard=2G", "--", "true")


def test_the_grace_is_the_clusters(submitter: Submitter) -> None:
    done = submitter.submit("--grace=2m", "--", "true")
    assert done.returncode == 0 and "KillWait" in done.stderr


def test_sweeps_become_arrays(submitter: Submitter) -> None:
    words = submitter.words(
        "--sweep", "lr=0.1,it's", "--array=3,5", "--", "sh", "-c", 'echo {index} "$lr" [{lr}]'
    )
    assert "--array=0-3" in words
    assert submitter.run_script(0).stdout == "3 0.1 [0.1]\n"
    submitter.words("--sweep", "lr=0.1,it's", "--", "sh", "-c", 'echo "$0 $lr"', "{lr}")
    assert submitter.run_script(1).stdout == "it's it's\n"


def test_retries_are_a_loop_in_the_script(submitter: Submitter) -> None:
    tries = submitter.machine.directory / "tries"
    submitter.words("--retry=2", "--", "sh", "-c", f"echo x >> {tries}; exit 5")
    assert submitter.run_script().returncode == 5
    assert tries.read_text() == "x\n" * 3
    submitter.words("--retry=2", "--", "sh", "-c", f"echo x >> {tries}; test $(wc -l < {tries}) -ge 5")
    assert submitter.run_script().returncode == 0
    assert tries.read_text() == "x\n" * 5


def test_variables_are_exported_and_a_sweeps_values_win(submitter: Submitter) -> None:
    submitter.words("--env=A=it's b", "--", "printenv", "A")
    assert submitter.run_script().stdout == "it's b\n"
    submitter.words("--env=A=9", "--sweep=A=1,2", "--", "printenv", "A")
    assert submitter.run_script(1).stdout == "2\n"


def test_what_slurm_cannot_do_is_refused(submitter: Submitter) -> None:
    for words, text in [
        (["--notify=say", "--", "true"], "--mail-type"),
        (["--linger", "--", "true"], "Slurm ends what a job leaves behind"),
        (["--gpus=2", "--mem=1G", "--shard=1G", "--", "true"], "shards of one GPU"),
        (["--after=x", "--", "true"], "Slurm job"),
        (["--shard=none", "--mem=1G", "--", "true"], "--shard"),
        (["--mem=auto", "--", "true"], "--mem auto"),
        (["--env=a-b=1", "--", "true"], "cannot set a variable 'a-b'"),
        ([], "needs a command"),
    ]:
        done = submitter.submit(*words)
        assert done.returncode == 64 and text in done.stderr, done
    assert not submitter.script().exists()


def test_sbatchs_own_failure_and_its_absence(submitter: Submitter) -> None:
    submitter.machine.env["FAIL"] = "no such partition"
    done = submitter.submit("--", "true")
    assert done.returncode == 3 and "no such partition" in done.stderr
    (submitter.bin / "sbatch").unlink()
    submitter.machine.env["PATH"] = str(submitter.bin)
    done = submitter.submit("--", "true")
    assert done.returncode == 127 and "there is no sbatch" in done.stderr


def test_dry_run_submits_nothing(submitter: Submitter) -> None:
    text = submitter.machine.ok("slurm", "submit", "--dry-run", "--name=a b", "--", "true")
    assert text.startswith("sbatch --parsable ") and "'--job-name=a b'" in text and "exec true" in text
    assert not submitter.script().exists()


@pytest.mark.usefixtures("runners")
def test_inside_a_slurm_job_its_own_gpus_are_subdivided(submitter: Submitter) -> None:
    machine = submitter.machine
    machine.set(gpus(3))
    machine.env |= {"SLURM_JOB_ID": "77", "SLURM_JOB_GPUS": "1,2", "SLURM_TMPDIR": str(machine.directory)}
    go = machine.directory / "go"
    script = f"echo $CUDA_VISIBLE_DEVICES; while [ ! -e {go} ]; do sleep 0.02; done"
    jobs = [machine.ok("slurm", "submit", "--", "/bin/sh", "-c", script).strip() for _ in range(3)]
    assert not submitter.script().exists()
    wait_until(lambda: machine.ok("queue", "list").count("running") == 2)
    go.touch()
    machine.ok("queue", "wait", "--timeout=60s", *jobs)
    got = [machine.ok("queue", "log", job).strip() for job in jobs]
    assert set(got) == {uuid(1), uuid(2)}, "never the GPU that Slurm gave to others"
    directories = [path.name for path in machine.directory.iterdir() if path.name.endswith("-slurm-77")]
    assert len(directories) == 1
    lock = machine.directory / directories[0] / "runner.lock"

    def gone() -> bool:
        pid = lock.read_text().strip()
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or " Z " in stat.read_text()

    wait_until(gone)
