"""Processes under torchrun for tests; each case of ``ddp_worker.py`` prints its results as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from processes import RunProgram

WORKER = Path(__file__).parent / "ddp_worker.py"
AMPLE = "sim:2x16MiB,host:256MiB"


# Gloo's threads may drop Python's tensors while the interpreter ends, which ends the process
# (github.com/pytorch/pytorch/issues/190489): on a busy machine one run of seven. Ours do not.
ENDED_BY_GLOO = "terminate called without an active exception"


def past_gloo(run: Callable[[], CompletedProcess[str]]) -> CompletedProcess[str]:
    """Result of a program on the CPU's backend; runs it again if Gloo ended it."""
    for _ in range(6):
        done = run()
        if done.returncode == 0 or ENDED_BY_GLOO not in done.stderr:
            break
    return done


def launcher(processes: int = 2) -> list[str]:
    """Words before a script that start this number of processes of it on this machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


@dataclass
class Torchrun:
    """Starts several processes of a script."""

    run_program: RunProgram

    def __call__(
        self, *command: str, processes: int = 2, nodes: str = AMPLE, **settings: str
    ) -> CompletedProcess[str]:
        """Runs a script with its arguments, by default on nodes that hold all tensors."""
        settings = {"OMP_NUM_THREADS": "1"} | settings
        return self.run_program(*launcher(processes), *command, nodes=nodes, timeout=280, **settings)

    def case(
        self,
        case: str,
        processes: int = 2,
        device: str = "managed",
        backend: str = "none",
        nodes: str = AMPLE,
    ) -> list[dict[str, Any]]:
        """The rows that the worker's processes printed, by rank."""
        done = self(str(WORKER), case, backend, processes=processes, nodes=nodes, TEST_DEVICE=device)
        assert done.returncode == 0, done.stderr[-4000:]
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert len(rows) == processes, done.stdout
        return sorted(rows, key=lambda row: row["rank"])

    def found(self, case: str, processes: int = 2, **options: str) -> list[Any]:
        """Results of each process."""
        return found(self.case(case, processes, **options))


def found(rows: list[dict[str, Any]]) -> list[Any]:
    """Results of each process."""
    return [row["found"] for row in rows]


@pytest.fixture(scope="session")
def torchrun(run_program: RunProgram) -> Torchrun:
    """Starts several processes of a script by torchrun."""
    return Torchrun(run_program)
