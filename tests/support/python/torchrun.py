"""Processes under torchrun for tests; each case of ``ddp_worker.py`` prints what it found as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "ddp_worker.py"
ROOMY = "sim:2x16MiB,host:256MiB"


def launcher(processes: int = 2) -> list[str]:
    """The words before a script that start so many processes of it on this machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


def torchrun(*command: str, processes: int = 2, **env: str) -> subprocess.CompletedProcess[str]:
    """A script and its arguments in several processes, beside nodes with room for all."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "INNKEEPER_NODES": ROOMY} | env
    return subprocess.run(
        [*launcher(processes), *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def run(
    case: str, processes: int = 2, device: str = "managed", backend: str = "none", nodes: str = ROOMY
) -> Any:
    """What each process of the worker's said, by rank."""
    env = {"TEST_DEVICE": device, "INNKEEPER_NODES": nodes}
    done = torchrun(str(WORKER), case, backend, processes=processes, **env)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == processes, done.stdout
    return sorted(rows, key=lambda row: row["rank"])


def found(rows: Any) -> Any:
    """What each of them found."""
    return [row["found"] for row in rows]
