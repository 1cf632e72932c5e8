"""The file of results: a line of JSON for each cell, written as soon as it ends."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Machine:
    """Where and of which code a result is."""

    gpu: str  # Its name; empty without a GPU.
    driver: str
    torch: str
    commit: str
    date: str

    @property
    def same(self) -> tuple[str, str, str]:
        """The properties that all results in one table share."""
        return self.commit, self.gpu, self.torch

    def line(self) -> str:
        """For the table's head."""
        return f"{self.gpu or 'no GPU'}, driver {self.driver}, PyTorch {self.torch}, {self.date}"


def output_of(*command: str) -> str:
    """A command's output; empty where it cannot be run or fails."""
    try:
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def this_machine() -> Machine:
    """The first GPU that this process sees, and the code that stands here."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    driver = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
    return Machine(gpu, driver or "-", torch.__version__, this_commit(), date.today().isoformat())


def this_commit() -> str:
    """The commit that stands here. With ``-changed`` where files differ: no document takes such a figure."""
    commit = output_of("git", "rev-parse", "--short", "HEAD") or "unknown"
    return f"{commit}-changed" if output_of("git", "status", "--porcelain", "-uno") else commit


@dataclass(frozen=True)
class Result:
    """How a cell ended. ``status`` is ``measured``, or says why there are no figures."""

    cell: str
    machine: Machine
    status: str
    figures: dict[str, Any] = field(default_factory=dict)
    wall_s: float = 0.0  # Seconds of the whole process.
    process_peak: int | None = None  # Bytes of GPU memory of the process, by NVML; None where unknown.

    @property
    def is_measured(self) -> bool:
        """Whether it has figures."""
        return self.status == "measured"


def default_file(trial: bool) -> Path:
    """OUT=DIRECTORY says where; build/gpu otherwise."""
    name = "table-trial.jsonl" if trial else "table.jsonl"
    return Path(os.environ.get("OUT") or TOP / "build" / "gpu") / name


def append(path: Path, result: Result) -> None:
    """Adds a line in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def load(path: Path) -> list[Result]:
    """All results, in the order in which they were written; a line that a kill cut short is left out."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        results.append(Result(**entry | {"machine": Machine(**entry["machine"])}))
    return results


def latest(results: list[Result], machine: Machine) -> dict[str, Result]:
    """Cell to its last result of the same commit, GPU and PyTorch."""
    return {result.cell: result for result in results if result.machine.same == machine.same}
