"""The mutants that tools/mutate.py tries: those of the lists in tools/mutants/, and those drawn at random.

A list is text. A mutant is a name in brackets and its file, then why a test must fail, for a survivor that is
as good as the original the reason, and the change: the exact lines that go, marked `-`, and those that come
instead, marked `+`. The last line of both may be the beginning of one. What goes must stand in the file once.

    [free-to-reuse/order-after] src/residency/movement/transfers.cc
    why: an accelerator's memory is handed out again while a copy still touches it (I5, I6)
    -    order_after(id, users);
    -    memory.reset();
    +    memory.reset();
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

HEAD = re.compile(r"\[([^\]]+)\] (\S+)")


@dataclass(frozen=True)
class Mutant:
    """One change to one file."""

    name: str
    file: str
    old: str
    new: str
    why: str = ""
    equivalent: str = ""  # why no test can notice
    offset: int = -1  # position of `old`; -1: the only place that has it

    def apply(self, text: str) -> str:
        """The file's text with the change; raises ValueError if it does not apply."""
        offset = self.offset
        if offset < 0:
            if text.count(self.old) != 1:
                raise ValueError(f"{self.name}: its lines stand {text.count(self.old)} times in {self.file}")
            offset = text.index(self.old)
        return text[:offset] + self.new + text[offset + len(self.old) :]


def read_list(path: Path) -> list[Mutant]:
    """The mutants of one list."""
    mutants = []
    fields: dict[str, str] = {}
    gone: list[str] = []
    come: list[str] = []

    def finish() -> None:
        if fields:
            texts = {key: fields.get(key, "") for key in ("why", "equivalent")}
            old, new = "\n".join(gone), "\n".join(come)
            mutants.append(
                Mutant(fields["name"], fields["file"], old, new, texts["why"], texts["equivalent"])
            )
        fields.clear()
        gone.clear()
        come.clear()

    for number, line in enumerate(path.read_text().splitlines(), 1):
        head = HEAD.fullmatch(line)
        if head is not None:
            finish()
            fields.update(name=head.group(1), file=head.group(2))
        elif line.startswith(("-", "+")):
            (gone if line[0] == "-" else come).append(line[1:])
        elif line.startswith(("why: ", "equivalent: ")):
            key, text = line.split(": ", 1)
            fields[key] = text
        elif line and not line.startswith("#"):
            raise SystemExit(f"{path}:{number}: expected [name] file, why:, equivalent:, - or +")
    finish()
    return mutants


def read_lists(directory: Path) -> list[Mutant]:
    """The mutants of all lists, and the assurance that names differ."""
    mutants = [mutant for path in sorted(directory.glob("*.txt")) for mutant in read_list(path)]
    names = [mutant.name for mutant in mutants]
    for name in names:
        if names.count(name) > 1:
            raise SystemExit(f"two mutants are called {name}")
    return mutants


# ---------------------------------------------------------------- at random

SIGNS = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "++": "--", "--": "++"}
SIGN = re.compile(r"(?<=[\w)\]] )[+-](?= [\w(*])|\+=|-=|\+\+|--(?=\w|\))|(?<=\w)--")
STATEMENT = re.compile(r"\s+[\w*(].*;(\s*//.*)?")
NO_STATEMENT = re.compile(
    r"\s*(return|break|continue|using|IK_CHECK|friend|static|case|const |auto |default|public|private)"
)


def condition_end(text: str, start: int) -> int:
    """The offset behind the bracket that closes the one at `start`."""
    depth = 0
    for offset in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[offset], 0)
        if depth == 0:
            return offset + 1
    raise ValueError("a bracket is never closed")


def places_of(file: str, text: str) -> list[Mutant]:
    """All that could be changed in a file: statements deleted, conditions negated, plus for minus."""
    found = []
    offset = 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        code = line.split("//")[0]
        where = f"{file}:{number}"
        balanced = code.count("(") == code.count(")") and code.count("{") == code.count("}")
        if not line.lstrip().startswith(("#", "//")) and "IK_CHECK" not in line:
            if STATEMENT.fullmatch(line.rstrip("\n")) and balanced and not NO_STATEMENT.match(line):
                found.append(Mutant(f"{where} delete", file, line, "\n", offset=offset))
            for match in re.finditer(r"\b(?:if|while) (?=\()", code):
                start = offset + match.end()
                end = condition_end(text, start)
                old = text[start:end]
                if " = " not in old:
                    found.append(Mutant(f"{where} negate", file, old, f"(!{old})", offset=start))
            if '"' not in code:
                for match in SIGN.finditer(code):
                    sign = match.group()
                    place = offset + match.start()
                    found.append(Mutant(f"{where} {sign}", file, sign, SIGNS[sign], offset=place))
        offset += len(line)
    return found


def draw(top: Path, directories: list[str], seed: int) -> list[Mutant]:
    """Every place of every file, in an order that depends on the seed; the caller takes the first ones."""
    places = []
    for directory in directories:
        for path in sorted((top / directory).rglob("*")):
            if path.suffix in (".cc", ".h") and path.name not in ("gpu_table.cc", "link_model.cc"):
                places += places_of(path.relative_to(top).as_posix(), path.read_text())
    random.Random(seed).shuffle(places)
    return places
