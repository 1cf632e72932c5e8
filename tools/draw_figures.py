"""Draws the figures of docs/internals from the code's own tables.

    draw_figures.py          writes the SVG files
    draw_figures.py --check  fails if a file differs from its figure

Each figure has a title and a description for blind readers. The states and their steps are read
from src/residency; the layers from tools/check_layers.py. A box of the operand's path names a function, and
the script fails if its file no longer has that function.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import check_layers

TOP = Path(__file__).parent.parent
DIRECTORY = TOP / "docs" / "internals"
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, PALE, LINE, STRONG = "#1f2933", "#eef2f7", "#7b8794", "#1d4ed8"


@dataclass
class Figure:
    """An SVG under construction: width and height in pixels, and its description in words."""

    title: str
    description: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, lines: list[str], *, strong: bool = False) -> None:
        """A box with lines of text in it; the first line stands out."""
        colour = STRONG if strong else LINE
        self.parts.append(
            f"<rect x='{x:.0f}' y='{y:.0f}' width='{w:.0f}' height='{h:.0f}' rx='6' fill='{PALE}'"
            f" stroke='{colour}'/>"
        )
        top = y + h / 2 - (len(lines) - 1) * 8 + 4
        for number, line in enumerate(lines):
            weight = " font-weight='bold'" if number == 0 else ""
            size = 13 if number == 0 else 11
            self.text(x + w / 2, top + number * 16, line, extra=f"{weight} font-size='{size}'")

    def text(self, x: float, y: float, line: str, *, anchor: str = "middle", extra: str = "") -> None:
        """One line of text."""
        size = "" if "font-size" in extra else " font-size='11'"
        self.parts.append(
            f"<text x='{x:.0f}' y='{y:.0f}' text-anchor='{anchor}' fill='{INK}'{size}{extra}>"
            f"{escape(line)}</text>"
        )

    def arrow(self, path: str, *, dashed: bool = False) -> None:
        """A line along an SVG path, with a head at its end."""
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self.parts.append(
            f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='1.4'{dash} marker-end='url(#head)'/>"
        )

    def svg(self) -> str:
        """The file's text."""
        return "\n".join([
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}'"
            f" width='{self.width}' height='{self.height}' role='img' aria-labelledby='t d' {FONT}>",
            f"<title id='t'>{escape(self.title)}</title>",
            f"<desc id='d'>{escape(self.description)}</desc>",
            "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8'"
            f" orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='{LINE}'/></marker></defs>",
            f"<rect width='{self.width}' height='{self.height}' fill='white'/>",
            *self.parts,
            "</svg>",
            "",
        ])  # fmt: skip


def depth_of(name: str, table: dict[str, set[str]]) -> int:
    """The longest way down from a directory to one that links nothing."""
    return 1 + max((depth_of(link, table) for link in table[name]), default=-1)


def layers() -> Figure:
    """The directories of src/, each above all that it links; src/torch's directories beside them."""
    table = check_layers.direct_links()
    rows: dict[int, list[str]] = {}
    for name in sorted(table):
        rows.setdefault(depth_of(name, table), []).append(name)
    top = max(rows)
    inner = check_layers.INNER_ROWS["torch"][1:]
    width, step = 980, 58
    height = max(top + 1, len(inner)) * step + 60
    words = "; ".join(f"{name} links {', '.join(sorted(table[name])) or 'nothing'}" for name in sorted(table))
    figure = Figure("Layers of the sources", f"Lowest first. {words}.", width, height)
    figure.text(
        330,
        24,
        "src/: a directory links only directories below it",
        extra=" font-weight='bold' font-size='13'",
    )
    figure.text(830, 24, "inside src/torch", extra=" font-weight='bold' font-size='13'")
    for level, names in rows.items():
        y = height - 54 - level * step
        each = min(150, 640 // len(names) - 10)
        left = 330 - (each + 10) * len(names) / 2
        for number, name in enumerate(names):
            figure.box(left + number * (each + 10), y, each, 40, [name], strong=name == "residency")
    for level, row in enumerate(inner):
        y = height - 54 - level * step * (top + 1) // max(top + 1, len(inner))
        wide = 220 / len(row) - 6
        for number, name in enumerate(row):
            figure.box(720 + number * (wide + 12), y, wide, 36, [name])
    return figure


def table_in(path: str, name: str) -> list[list[str]]:
    """The rows of a constexpr table of C++, each with its cells as text, the row's comment first."""
    text = (TOP / path).read_text()
    body = text[text.index(name) :]
    body = body[: body.index("}};")]
    return [
        [match[1].strip(), *(cell.strip() for cell in match[2].split(","))]
        for match in re.finditer(r"/\*\s*(\w+)\s*\*/\s*\{\{(.*?)\}\}", body)
    ]


def enumerators(path: str, name: str) -> list[str]:
    """The names of an enumeration."""
    text = (TOP / path).read_text()
    body = re.search(rf"enum class {name} : uint8_t \{{(.*?)\}};", text, re.DOTALL)
    assert body is not None, f"{path} has no enumeration {name}"
    return re.findall(r"^\s*(\w+)", re.sub(r"//.*", "", body[1]).replace(",", "\n"), re.MULTILINE)


def replica_states() -> Figure:
    """The state of a replica after each event."""
    events = enumerators("src/residency/block/state.h", "ReplicaEvent")
    rows = table_in("src/residency/block/state.h", "kTransitions")
    names = [row[0] for row in rows]
    steps: dict[tuple[int, int], list[str]] = {}
    for source, row in enumerate(rows):
        for event, cell in zip(events, row[1:], strict=True):
            if cell != "kIllegal":
                steps.setdefault((source, int(cell)), []).append(event)
    words = "; ".join(f"{names[a]} to {names[b]} by {' or '.join(why)}" for (a, b), why in steps.items())
    figure = Figure("The states of a replica", f"{words}.", 760, 380)
    places = dict(zip(range(4), ((90, 190), (330, 60), (580, 190), (330, 320)), strict=True))
    for number, name in enumerate(names):
        x, y = places[number]
        figure.box(x - 60, y - 22, 120, 44, [name], strong=number in (2, 3))
    bends = {
        (0, 1): ("M120 166 Q 180 80 266 62", (160, 96)), (1, 0): ("M272 78 Q 210 110 146 166", (238, 132)),
        (1, 2): ("M392 60 Q 500 80 560 164", (520, 92)), (2, 0): ("M518 190 L 154 190", (335, 184)),
        (0, 3): ("M100 214 Q 150 300 266 316", (150, 292)),
        (3, 0): ("M272 304 Q 200 270 128 214", (246, 258)),
        (2, 3): ("M570 214 Q 520 300 394 318", (532, 300)),
        (3, 2): ("M390 304 Q 460 270 540 214", (424, 256)),
        (0, 0): ("M60 168 Q 20 120 88 164", (40, 130)), (2, 2): ("M620 168 Q 690 130 644 182", (690, 140)),
        (3, 3): ("M380 342 Q 400 374 352 346", (420, 366)),
    }  # fmt: skip
    for pair, why in steps.items():
        path, (x, y) = bends[pair]
        figure.arrow(path, dashed=why == ["free"])
        figure.text(x, y, ", ".join(why))
    return figure


def move_states() -> Figure:
    """The states of a move, and which may follow which."""
    rows = table_in("src/residency/block/move.h", "kMaySucceed")
    names = [row[0] for row in rows]
    follows = {
        name: [other for other, cell in zip(names, row[1:], strict=True) if cell == "true"]
        for name, row in zip(names, rows, strict=True)
    }
    words = "; ".join(f"{name} to {' or '.join(after)}" for name, after in follows.items() if after)
    figure = Figure("The life of a move", f"{words}.", 800, 220)
    notes = {
        "wanted": "asks for free space", "reserved": "has a reservation", "copying": "copies are on a queue",
        "landed": "the bytes are there", "failed": "the block is as before", "cancelled": "before any copy",
    }  # fmt: skip
    places = {"wanted": (20, 30), "reserved": (220, 30), "copying": (420, 30), "landed": (620, 30),
              "cancelled": (220, 150), "failed": (420, 150)}  # fmt: skip
    for name in names:
        x, y = places[name]
        figure.box(x, y, 160, 48, [name, notes[name]], strong=name == "landed")
    for name, after in follows.items():
        x, y = places[name]
        for other in after:
            to_x, to_y = places[other]
            if to_y == y:
                figure.arrow(f"M{x + 160} {y + 24} L {to_x - 2} {to_y + 24}")
            else:
                figure.arrow(f"M{x + 80} {y + 48} L {to_x + 80} {to_y - 2}")
    return figure


@dataclass(frozen=True)
class Stage:
    """A box of the operand's path: a function, its file, and a description."""

    function: str
    path: str
    does: str


PATH = (
    Stage("run_managed", "src/torch/operator/fallback.cc", "PyTorch calls the one boxed function"),
    Stage("collect", "src/torch/operator/fallback.cc", "the signature names operands and what is written"),
    Stage("choose", "src/torch/operator/operator_call.cc", "the node with most bytes of the operands"),
    Stage("acquire", "src/residency/operands.cc", "resident operands are pinned by one compare-and-swap"),
    Stage("fetch", "src/residency/movement/mover.cc", "missing operands: free space, then a copy"),
    Stage(
        "finish_arrival", "src/residency/movement/mover.cc", "the compute queue waits for the copy's event"
    ),
    Stage("compute", "src/torch/operator/fallback.cc", "the kernel runs on real tensors over the replicas"),
    Stage("give_back", "src/torch/operator/operator_call.cc", "results become blocks"),
    Stage("release", "src/residency/engine.cc", "the operator's stamp is noted, pins go, the planner looks"),
)


def operand_path() -> Figure:
    """The stages between a call of an operator and its result."""
    for stage in PATH:
        text = (TOP / stage.path).read_text()
        if not re.search(rf"(?:^|[\w>*&] |::){stage.function}\([^;]*\) (?:const )?\{{", text, re.MULTILINE):
            raise SystemExit(f"draw_figures.py: {stage.path} has no {stage.function}(): mend PATH")
    words = "; ".join(f"{stage.function} ({stage.does})" for stage in PATH)
    figure = Figure("The path of an operand", f"In order: {words}.", 760, len(PATH) * 58 + 20)
    for number, stage in enumerate(PATH):
        y = 14 + number * 58
        figure.box(20, y, 190, 40, [f"{stage.function}()"], strong="residency" in stage.path)
        figure.text(230, y + 17, stage.does, anchor="start", extra=" font-size='13'")
        figure.text(230, y + 34, stage.path, anchor="start", extra=" fill-opacity='0.65'")
        if number + 1 < len(PATH):
            figure.arrow(f"M115 {y + 40} L 115 {y + 56}")
    return figure


PARTS = {
    "engine": "the facade, which forwards",
    "requests": "pin, prefetch, evict, read one block",
    "invariants": "checks the books",
    "plan_executor": "issues the moves that plans order",
    "recomputer": "discarded blocks, and their recorded calls",
    "operands": "pins, exclusive writes, births and ends of blocks",
    "evictor": "charges, victims, one make_room()",
    "movement": "moves, copies, releases, the mover's thread",
    "books": "budgets, admission, lasting pins, programs",
    "block": "nodes, blocks, replicas, the mutex",
}


def engine_parts() -> Figure:
    """The parts of src/residency as tools/check_layers.py orders them."""
    rows = check_layers.INNER_ROWS["residency"][::-1]
    names = {name for row in rows for name in row}
    if names != set(PARTS):
        raise SystemExit(f"draw_figures.py: PARTS and INNER_ROWS differ in {names ^ set(PARTS)}")
    words = "; ".join(f"{name}: {PARTS[name]}" for row in rows for name in row)
    figure = Figure("The engine's parts", f"Highest first. {words}.", 760, len(rows) * 62 + 20)
    for level, row in enumerate(rows):
        wide = 720 / len(row) - 10
        for number, name in enumerate(row):
            figure.box(20 + number * (wide + 10), 12 + level * 62, wide, 44, [name, PARTS[name]])
        if level + 1 < len(rows):
            figure.arrow(f"M380 {56 + level * 62} L 380 {72 + level * 62}")
    upward, mover = rows.index(("evictor",)), rows.index(("movement",))
    figure.arrow(f"M700 {12 + mover * 62} L 700 {58 + upward * 62}", dashed=True)
    figure.text(690, 67 + upward * 62, "SpaceSource", anchor="end")
    return figure


FIGURES = (layers, replica_states, move_states, operand_path, engine_parts)


def main() -> int:
    """Writes the figures, or checks them."""
    stale = []
    for draw in FIGURES:
        path = DIRECTORY / f"{draw.__name__}.svg"
        text = draw().svg()
        if "--check" not in sys.argv:
            DIRECTORY.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(TOP)))
    if stale:
        print(f"stale: {', '.join(stale)}: run python3 tools/draw_figures.py")
    else:
        print(f"figures: {len(FIGURES)} are as the code has it")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
