"""Measurements of tests/gpu, as rows for docs/gpu-results.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def shown(name: str, value: Any) -> str:
    """A figure with its unit, which its name ends with."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(element) for element in value)
    if isinstance(value, int) and ("bytes" in name or name.startswith(("budget", "allocated", "peak"))):
        return f"{value / (1 << 20):.1f} MiB"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def figures(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves of nested figures, each with the names that lead to it."""
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from figures(inner, (*path, name))


def origin(commit: str = "", **machine: str) -> str:
    """Where the figures come from, in the words that tools/check_figures.py knows."""
    where = ", ".join(f"{name} {value}" for name, value in machine.items() if value)
    return (
        f"Measured at {commit} by `make gpu`, of `src/residency` and `src/torch`: {where}"
        if commit
        else where
    )


def rows(results: dict[str, Any]) -> Iterator[str]:
    """The lines of the table."""
    yield origin(**results.get("machine", {}))
    yield ""
    yield "| test | figure | value |"
    yield "|---|---|---|"
    for test, measured in results.items():
        if test == "machine":
            continue
        for path, value in figures(measured, ()):
            yield f"| {test} | {' '.join(path).replace('_', ' ')} | {shown(path[-1], value)} |"


def main(path: Path) -> int:
    """Prints the rows. Returns 1 where nothing has been measured on a GPU."""
    if not path.exists():
        print(f"{path} is not there: nothing has been measured; run make gpu on a machine with a GPU")
        return 1
    results = json.loads(path.read_text())
    gpu = results.get("machine", {}).get("GPU", "")
    if "Fake" in gpu:
        print(f"{path} is of {gpu}, which is no GPU: these are no results")
        return 1
    print("\n".join(rows(results)))
    return 0
