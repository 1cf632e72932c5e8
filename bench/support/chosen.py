"""Which of a benchmark's cases its command line chooses."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def pattern(text: str) -> re.Pattern[str]:
    """The type of an argument that is a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def numbers(text: str) -> list[float]:
    """The type of an argument that is a list of numbers, as ``20,50``."""
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected numbers, as in 20,50") from None


def model_of(trace: Path) -> str:
    """The name of the model that a file of ``bench/traces`` records."""
    return trace.name.removesuffix(".trace.gz")


def chosen(cases: Iterable[T], only: re.Pattern[str], name: Callable[[T], str]) -> list[T]:
    """Those whose names match.

    Raises:
        SystemExit: there is none; names them all.

    """
    every = list(cases)
    found = [case for case in every if only.search(name(case))]
    if not found:
        raise SystemExit(f"--only {only.pattern}: no such name; there are {', '.join(map(name, every))}")
    return found
