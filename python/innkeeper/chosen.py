"""The line of ``auto_choice`` on standard error: the chosen GPUs, the reason, the other GPUs' figures."""

from __future__ import annotations

import os
import sys

from innkeeper import _C
from innkeeper.gpus import GPU, gpus
from innkeeper.leases import Key, mode_name
from innkeeper.report import format_bytes

_REASONS = {
    "free": "most free memory",
    "ratio": "largest free part of the memory",
    "power": "least power, of its limit",
    "utilization": "least utilization",
}
_told_all = False  # the table stands on standard error; later choices are one line each


def _is_quiet() -> bool:
    return os.environ.get("INNKEEPER_LOG", "").strip().lower() in ("warn", "warning", "error")


def tell(uuids: list[str], mode: int | str, key: Key | None) -> None:
    """Says it of a choice that was just made: by a table the first time, then by a line."""
    global _told_all
    if _is_quiet():
        return
    if key is None:
        reason = _REASONS[mode_name(mode)]
    elif isinstance(mode, str) and mode not in _REASONS:
        reason = f"first by {mode}"  # a method of the program's, as a key
    else:
        reason = "highest key"
    found, leases = gpus(), _C.lease_counts()
    names = " and ".join(_title(gpu) for gpu in found if gpu.uuid in uuids)
    most = max((leases.get(uuid, 0) for uuid in uuids), default=0)
    shared = f"; {most} leases share it" if most > 1 else ""
    print(f"innkeeper: chose {names} of {len(found)}: {reason}{shared}", file=sys.stderr, flush=True)
    if not _told_all:
        _told_all = True
        warnings = [f"innkeeper: {line}" for line in _C.lease_warnings()]
        lines = [*_table(found, uuids, leases), *warnings]
        print("\n".join(lines), file=sys.stderr, flush=True)


def tell_of_none(error: RuntimeError) -> None:
    """Says that the CPU stands in for a GPU, and why."""
    if not _is_quiet():
        print(f"innkeeper: chose the CPU: {error}", file=sys.stderr, flush=True)


def _title(gpu: GPU) -> str:
    return f"GPU {gpu.index} ({gpu.uuid[:12]})"


def _table(found: list[GPU], uuids: list[str], leases: dict[str, int]) -> list[str]:
    rows = [["", "GPU", "NAME", "FREE / TOTAL", "UTIL", "POWER", "LEASES"]]
    for gpu in found:
        free, total = (
            "?" if size is None else format_bytes(size) for size in (gpu.memory_free, gpu.memory_total)
        )
        rows.append(
            [
                "*" if gpu.uuid in uuids else "",
                str(gpu.index),
                gpu.name,
                f"{free} / {total}",
                "-" if gpu.utilization is None else f"{gpu.utilization:.0%}",
                "-" if gpu.power is None else f"{gpu.power:.0f} W",
                str(leases.get(gpu.uuid, 0)),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = (
        "  ".join(
            cell.ljust(width) if at < 3 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return [line.rstrip() for line in aligned]
