"""Requests in Innkeeper's words, as submitit's parameters. Slurm itself: tests/cli/test_real_slurm.py."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from documents import fences
from innkeeper.slurm import submitit_parameters
from repository import ROOT

scripts = sysconfig.get_path("scripts")
pytestmark = [
    pytest.mark.usefixtures("processes"),  # submitit_parameters() calls the program.
    pytest.mark.skipif(
        shutil.which("innkeeper", path=scripts) is None, reason="the program innkeeper is not built here"
    ),
]


@pytest.mark.parametrize(
    ("request_", "parameters"),
    [
        ("", {"slurm_gres": "gpu:1"}),
        ("--gpus 2 --time 2h", {"slurm_gres": "gpu:2", "timeout_min": 120}),
        ("--mem=3G --shard 2G", {"slurm_gres": "shard:2"}),
        ("--gpus=0 --cpus 4 --name 7", {"cpus_per_task": 4, "name": "7"}),
        ("--gpus=0 -C /", {"cpus_per_task": 1, "slurm_additional_parameters": {"chdir": "/"}}),
        (
            "--after 12 --priority=-2",
            {
                "slurm_gres": "gpu:1",
                "slurm_dependency": "afterok:12",
                "slurm_additional_parameters": {"nice": "200", "kill-on-invalid-dep": "yes"},
            },
        ),
    ],
)
def test_a_request_becomes_parameters(request_: str, parameters: dict[str, object]) -> None:
    assert submitit_parameters(request_) == parameters


def test_in_a_slurm_job_it_asks_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert submitit_parameters("--gpus 3") == {"slurm_gres": "gpu:3"}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("--gpus two", "--gpus two: expected a number of GPUs from 1 to 64"),
        ("--mem 3X", "3X"),
        ("--sweep lr=1,2", "--sweep is not for submitit, which has Executor.map_array"),
        ("--retry=2", "--retry is not for submitit"),
        ("--env A=1", "slurm_setup"),
        ("--nonsense", "nonsense"),
    ],
)
def test_what_cannot_be_asked_for_is_said(request_: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        submitit_parameters(request_)


def test_what_slurm_has_no_words_for_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="GPUs whole"):
        assert submitit_parameters("--mem 3G") == {"slurm_gres": "gpu:1"}


def test_without_the_program_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(FileNotFoundError, match="innkeeper"):
        submitit_parameters("")


def test_the_document_s_program_submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    stub = tmp_path / "sbatch"
    stub.write_text(f'#!/bin/sh\ncat "$1" > {tmp_path}/script\necho Submitted batch job 7\n')
    stub.chmod(0o755)
    (tmp_path / "srun").symlink_to(stub)  # submitit looks for it.
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    blocks = [fence.text for fence in fences(ROOT / "docs" / "choosing.md") if "submitit" in fence.text]
    names: dict[str, Any] = {}
    exec(blocks[0], names)
    assert names["job"].job_id == "7"
    script = (tmp_path / "script").read_text()
    assert "#SBATCH --gres=gpu:2\n" in script and "#SBATCH --time=120\n" in script
