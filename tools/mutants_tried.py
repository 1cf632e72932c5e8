"""The outcomes of the mutants that tools/mutate.py tried, kept in build/ from one run to the next.

A run of whole lists takes hours. A stopped run goes on at the next call, and a run with a limit begins with
the mutants that were tried longest ago, so that runs of an hour reach each of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from mutation import Mutant

KILLED, SURVIVED, NOT_BUILT, NOT_APPLIED = "killed", "survived", "does not compile", "does not apply"


@dataclass
class Outcome:
    """The outcome of one mutant."""

    mutant: Mutant
    verdict: str
    by: str = ""  # the test that failed
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether a developer must look at it."""
        if self.mutant.offset >= 0:
            return False  # drawn at random: for a person to read
        return self.verdict != KILLED and not (self.verdict == SURVIVED and self.mutant.equivalent)


class Tried:
    """The last outcome of each mutant, by name, with the commit that was broken and its number in order."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lock = Lock()  # mutants are tried in several trees at a time
        self.last: dict[str, dict[str, str | float]] = {}
        try:
            kept = json.loads(file.read_text())
        except (OSError, ValueError):
            return
        if isinstance(kept, dict):
            self.last = {name: each for name, each in kept.items() if is_entry(each)}

    def at(self, base: str, mutants: list[Mutant]) -> list[Outcome]:
        """The outcomes at this commit, in the order of `mutants`."""
        known = ((mutant, self.last.get(mutant.name, {})) for mutant in mutants)
        return [
            Outcome(mutant, str(each["verdict"]), str(each["by"]), float(each["seconds"]))
            for mutant, each in known
            if each.get("base") == base
        ]

    def add(self, base: str, outcome: Outcome) -> None:
        """Writes an outcome down at once."""
        with self.lock:
            numbers = (int(each["number"]) for each in self.last.values())
            self.last[outcome.mutant.name] = {
                "base": base,
                "number": 1 + max(numbers, default=0),
                "verdict": outcome.verdict,
                "by": outcome.by,
                "seconds": outcome.seconds,
            }
            self.write()

    def begin_anew(self) -> None:
        """After a complete run: the next one of the same commit tries each once more."""
        for each in self.last.values():
            each["base"] = ""
        self.write()

    def write(self) -> None:
        """Replaces the file as a whole, so that a run that is killed loses nothing."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.last, indent=0))
        fresh.replace(self.file)

    def longest_ago_first(self, base: str, mutants: list[Mutant]) -> list[Mutant]:
        """Those that were never tried first: in a fresh checkout each commit begins at another place."""
        first = int(base, 16) % max(1, len(mutants))
        turned = [*mutants[first:], *mutants[:first]]
        return sorted(turned, key=lambda mutant: self.last.get(mutant.name, {}).get("number", 0))


def is_entry(each: object) -> bool:
    """Whether this is one of the file's entries, and not foreign data."""
    kinds = {"base": str, "verdict": str, "by": str, "seconds": int | float, "number": int}
    return isinstance(each, dict) and all(isinstance(each.get(key), kind) for key, kind in kinds.items())
