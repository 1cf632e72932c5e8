"""GPUs as rows with the columns of ``nvidia-smi --query-gpu``: MiB, watts, per cent."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from innkeeper.gpus import GPU

Row = dict[str, Any]
"""By column. ``None`` is "cannot be told"."""


def _mib(size: int | None) -> int | None:
    return None if size is None else size >> 20


_OWN: dict[str, Callable[[GPU], Any]] = {
    "index": lambda gpu: gpu.index,
    "uuid": lambda gpu: gpu.uuid,
    "gpu_name": lambda gpu: gpu.name,
    "memory.total": lambda gpu: _mib(gpu.memory_total),
    "memory.free": lambda gpu: _mib(gpu.memory_free),
    "memory.used": lambda gpu: _mib(gpu.memory_used),
    "utilization.gpu": lambda gpu: None if gpu.utilization is None else round(gpu.utilization * 100),
    "power.draw": lambda gpu: gpu.power,
    "power.limit": lambda gpu: gpu.power_limit,
    "temperature.gpu": lambda gpu: gpu.temperature,
}
_OTHER_NAMES: dict[str, Callable[[GPU], Any]] = {
    "name": _OWN["gpu_name"],
    "gpu_uuid": _OWN["uuid"],
    "memory.reserved": lambda gpu: _mib(gpu.memory_reserved),
}


def rows_of(gpus: Sequence[GPU], columns: Sequence[str] = ()) -> list[Row]:
    """A row for each GPU, with more columns, which ``nvidia-smi`` is asked for where we do not know them.

    Raises:
        ValueError: ``nvidia-smi`` does not know one of them, or is not here.

    """
    rows = [{name: value(gpu) for name, value in _OWN.items()} for gpu in gpus]
    known = {name: _OTHER_NAMES[name] for name in columns if name in _OTHER_NAMES}
    unknown = [name for name in columns if name not in _OWN and name not in known]
    asked = _ask(unknown) if unknown and gpus else {}
    for row, gpu in zip(rows, gpus, strict=True):
        row |= {name: value(gpu) for name, value in known.items()}
        row |= asked.get(gpu.uuid, dict.fromkeys(unknown))
    return rows


def _ask(columns: list[str]) -> dict[str, Row]:
    """The columns by UUID, from ``nvidia-smi``."""
    query = f"--query-gpu=uuid,{','.join(columns)}"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        known = ", ".join([*_OWN, *_OTHER_NAMES])
        raise ValueError(
            f"the columns {', '.join(columns)} are nvidia-smi's, which does not answer ({error}); "
            f"without it there are {known}"
        ) from error
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode != 0:
        raise ValueError(f"nvidia-smi {query}: {lines[0] if lines else f'exit status {done.returncode}'}")
    cells = csv.reader(lines, skipinitialspace=True)
    return {
        uuid: {name: _value(text) for name, text in zip(columns, rest, strict=False)} for uuid, *rest in cells
    }


def _value(text: str) -> Any:
    """A number where it is one; None for ``[N/A]``, ``[Not Supported]`` and the like."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
