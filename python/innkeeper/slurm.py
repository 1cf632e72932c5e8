"""Requests in Innkeeper's words, for jobs that submitit submits to Slurm.

The words are those of ``innkeeper slurm submit`` (``man innkeeper``). That program translates them, so
requests by a shell and by Python cannot differ. This module does not need submitit
(https://github.com/facebookincubator/submitit).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
import warnings
from pathlib import Path

_NOT_SUBMITITS = {
    "--array": "Executor.map_array",
    "--sweep": "Executor.map_array",
    "--retry": "its checkpoints",
    "--output": "the executor's directory",
    "--env": "slurm_setup",
}
_NAMES = {
    "--gres": "slurm_gres",
    "--dependency": "slurm_dependency",
    "--cpus-per-task": "cpus_per_task",
    "--time": "timeout_min",
    "--job-name": "name",
}


def submitit_parameters(request: str) -> dict[str, object]:
    """Arguments for ``update_parameters`` of submitit's ``AutoExecutor`` that ask Slurm for ``request``.

    ::

        executor = submitit.AutoExecutor("log", cluster="slurm")
        executor.update_parameters(**submitit_parameters("--gpus 2 --mem 20G --time 2h"))
        job = executor.submit(train, 0.1)

    In the job ``innkeeper.auto_choice`` and ``innkeeper pick`` subdivide the GPUs that Slurm gave. Without
    ``--time`` submitit's own limit holds, five minutes.

    Args:
        request: options of ``innkeeper slurm submit``, in a shell's syntax.

    Raises:
        ValueError: no such request, with the mistake; also ``--array``, ``--sweep``, ``--retry``,
            ``--output`` and ``--env``, for which submitit has its own ways. Requests that Slurm cannot
            express are warnings.
        FileNotFoundError: the program innkeeper is not installed.

    """
    words = shlex.split(request)
    for word in words:
        if instead := _NOT_SUBMITITS.get(word.partition("=")[0]):
            raise ValueError(f"{word.partition('=')[0]} is not for submitit, which has {instead}")
    named = any(word.partition("=")[0] == "--name" for word in words)
    parameters: dict[str, object] = {}
    more: dict[str, str] = {}
    for option in _sbatch(words):
        key, _, value = option.partition("=")
        here = key == "--chdir" and value == str(Path.cwd())
        if here or key == "--parsable" or (key == "--job-name" and not named):
            continue
        if key in _NAMES:
            parameters[_NAMES[key]] = int(value) if value.isdigit() and key != "--job-name" else value
        else:
            more[key.removeprefix("--")] = value
    if more:
        parameters["slurm_additional_parameters"] = more
    return parameters


def _sbatch(words: list[str]) -> list[str]:
    """The options that the program would give sbatch."""
    program = shutil.which("innkeeper", path=sysconfig.get_path("scripts")) or shutil.which("innkeeper")
    if program is None:
        raise FileNotFoundError("the program innkeeper is neither beside this Python nor on the PATH")
    # In a Slurm job too it is another job that is asked for.
    environment = {name: value for name, value in os.environ.items() if name != "SLURM_JOB_ID"}
    answer = subprocess.run(
        [program, "slurm", "submit", "--dry-run", *words, "--", "python"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line.removeprefix("innkeeper").lstrip(": ") for line in answer.stderr.splitlines()]
    if answer.returncode != 0:
        raise ValueError(said[0].removeprefix("slurm submit: ") if said else f"no answer from {program}")
    for note in said:
        warnings.warn(note, stacklevel=3)
    return shlex.split(answer.stdout.splitlines()[0])[1:]
