"""Code blocks of Markdown documents, and their text without the parts that differ between machines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Fence(NamedTuple):
    """A code block: its language, its text, and the number of its first line, from 1."""

    language: str
    text: str
    line: int


def fences(document: Path) -> list[Fence]:
    found: list[Fence] = []
    opened: tuple[str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        if opened is None and line.startswith("```"):
            opened, lines = (line[3:].strip(), number), []
        elif opened is not None and line == "```":
            found.append(Fence(opened[0], "\n".join(lines) + "\n", opened[1]))
            opened = None
        elif opened is not None:
            lines.append(line)
    assert opened is None, f"{document}: the block that line {opened} opens has no end"
    return found


def without_numbers(text: str) -> str:
    """Text with numbers and units as ``#`` and any spaces as one, so that all machines' output is alike."""
    return (
        " ".join(re.sub(r"\d[\d.,]*\d|\d", "#", text).split()).replace("# KiB", "# B").replace("# MiB", "# B")
    )
