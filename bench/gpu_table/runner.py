"""Runs cells, each in a process of its own with a time limit, and writes each result at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_table import results
from gpu_table.cells import Cell
from gpu_table.process_memory import PeakOf
from gpu_table.results import Machine, Result

PACKAGE = Path(__file__).resolve().parent
TRIAL_HOST = "2GiB"


@dataclass(frozen=True)
class Left:
    """A cell that was left out, and why."""

    cell: Cell
    reason: str


def environment_of(cell: Cell) -> dict[str, str]:
    """The variables of a cell's process."""
    settings = {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS asks for it where results must be repeatable.
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",  # For all ways: no fragments under a cap.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    if cell.how.is_managed:
        size = "" if cell.cap_bytes is None else f":{cell.cap_bytes}B"
        sim = f"sim:{cell.cap_bytes or 1 << 28}B,host:{TRIAL_HOST}"
        settings |= {"INNKEEPER_NODES": sim if cell.trial else f"cuda:0{size},host", **cell.how.settings}
    return settings


def command_of(cell: Cell) -> list[str]:
    """The command line that measures a cell."""
    return [sys.executable, str(PACKAGE), "--cell", cell.key, *(["--trial"] if cell.trial else [])]


def run_cell(
    cell: Cell, machine: Machine, command: list[str] | None = None, limit_s: float | None = None
) -> Result:
    """Runs one cell to its end, or until its time is over.

    Args:
        cell: to run.
        machine: for the result.
        command: another one than the cell's, for tests.
        limit_s: another limit than the cell's.

    """
    began = time.monotonic()
    missing = cell.how.missing(has_gpu=not cell.trial)
    if missing:
        return Result(cell.key, machine, missing)
    limit_s = limit_s or cell.limit_s
    over = False
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command or command_of(cell),
            env=os.environ | environment_of(cell),
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            with PeakOf(process.pid) as peak:
                try:
                    process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    over = True
        finally:
            kill_group(process)  # Also the processes that it started: Inductor's workers outlive it.
        out.seek(0)
        err.seek(0)
        printed, complaint = out.read(), err.read()
    wall_s = time.monotonic() - began
    if over:
        return Result(cell.key, machine, f"over the limit of {limit_s:g} s", wall_s=wall_s)
    return ended(cell, machine, process.returncode, printed, complaint, wall_s, peak.bytes)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that leads a group, and the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def ended(
    cell: Cell, machine: Machine, code: int, printed: str, complaint: str, wall_s: float, peak: int | None
) -> Result:
    """The result of a process that has ended by itself, or was killed by another."""
    if code < 0:
        return Result(cell.key, machine, f"killed by signal {-code}", wall_s=wall_s, process_peak=peak)
    if code > 0:
        lines = [line.strip() for line in complaint.splitlines() if line.strip()]
        status = lines[-1] if lines else f"ended with {code}"
        return Result(cell.key, machine, status, wall_s=wall_s, process_peak=peak)
    if not printed.strip():
        return Result(cell.key, machine, "printed nothing", wall_s=wall_s, process_peak=peak)
    figures = json.loads(printed.splitlines()[-1])
    status = figures.pop("status")
    if status == "out of memory":
        status = f"out of memory at {figures['peak_bytes'] / (1 << 30):.2f} GiB"
    return Result(cell.key, machine, status, figures, wall_s, peak)


def run_all(
    cells: Iterable[Cell],
    machine: Machine,
    path: Path,
    minutes: float,
    again: bool = False,
    tell: Callable[[Cell, Result | None], None] = lambda cell, result: None,
    run: Callable[[Cell, Machine], Result] = run_cell,
) -> list[Left]:
    """Runs cells in their order, and returns those that were left out.

    Args:
        cells: by importance.
        machine: where they run.
        path: the file of results. A cell with a result of the same commit, GPU and PyTorch is skipped.
        minutes: no cell is begun that would end later by its estimate.
        again: whether to run also those that have a result.
        tell: called before each cell, and with its result after it.
        run: runs one cell; another one for tests.

    """
    began = time.monotonic()
    known = {} if again else results.latest(results.load(path), machine)
    left = []
    for cell in cells:
        if cell.key in known:
            left.append(Left(cell, "it has a result"))
            continue
        rest_s = 60 * minutes - (time.monotonic() - began)
        if cell.estimate_s > rest_s:
            left.append(Left(cell, f"about {cell.estimate_s:.0f} s, and {max(0.0, rest_s):.0f} s are left"))
            continue
        tell(cell, None)
        result = run(cell, machine)
        results.append(path, result)
        tell(cell, result)
    return left
