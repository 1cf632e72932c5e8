"""The table as Markdown, from the file of results."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_table.cells import Cell
from gpu_table.results import Machine, Result
from gpu_table.ways import PLAIN
from gpu_table.workloads import WORKLOADS

COMMAND = "make table"
CODE = "`bench/gpu_table`, `src/residency`, `src/plan` and `src/torch`"
TRIAL = (
    "No measurement: there is no GPU here. Innkeeper ran on a simulated GPU and the rivals' code on the CPU, "
    "at the smallest shape."
)
COLUMNS = (
    "way",
    "cap",
    "{unit}/s",
    "of uncapped",
    "allocator's peak",
    "process's peak",
    "pinned host",
    "same bits",
    "lines changed",
    "note",
)


def lines(cells: list[Cell], known: dict[str, Result], machine: Machine, trial: bool) -> Iterator[str]:
    """A table for each workload; cells without a result have no row."""
    if trial:
        yield TRIAL
    else:
        yield f"Measured at {machine.commit} by `{COMMAND}`, of {CODE}: {machine.line()}."
    for name, work in WORKLOADS.items():
        rows = [(cell, known[cell.key]) for cell in cells if cell.workload == name and cell.key in known]
        if not rows:
            continue
        rows.sort(key=lambda row: -(row[0].cap_gib or float("inf")))
        reference = known.get(Cell(name, PLAIN.name, None, trial).key)
        columns = [column.format(unit=work.unit) for column in COLUMNS]
        yield ""
        yield f"**{name}**: {work.title}"
        yield ""
        yield f"| {' | '.join(columns)} |"
        yield f"|{'---|' * len(columns)}"
        for cell, result in rows:
            yield f"| {' | '.join(row_of(cell, result, reference))} |"


def row_of(cell: Cell, result: Result, reference: Result | None) -> list[str]:
    """A row's cells."""
    figures = result.figures
    bold = "**" if cell.how.is_managed else ""
    speed = figures.get("units_a_second")
    row = [
        f"{bold}{cell.way}{bold}",
        cell.cap,
        "-" if speed is None or cell.trial else f"{speed:,.0f}",
        "-" if cell.trial else share_of(result, reference),
        size(figures.get("peak_bytes")) if result.is_measured else "-",
        size(result.process_peak),
        size(figures.get("pinned_bytes")) if result.is_measured else "-",
        same_bits(cell, result, reference),
        str(cell.how.lines_changed),
        note_of(cell, result),
    ]
    return row


def size(count: int | None) -> str:
    """Bytes in GiB, or in MiB where they are few; - where nothing is known."""
    if not count:
        return "-"
    return f"{count / (1 << 30):.2f} GiB" if count >= 1 << 29 else f"{count / (1 << 20):.1f} MiB"


def share_of(result: Result, reference: Result | None) -> str:
    """The speed in parts of uncapped plain PyTorch's."""
    if not result.is_measured or reference is None or not reference.is_measured:
        return "-"
    return f"{reference.figures['step_s'] / result.figures['step_s']:.3f}"


def same_bits(cell: Cell, result: Result, reference: Result | None) -> str:
    """Whether all parameters have the bits of uncapped plain PyTorch after as many steps."""
    if not result.is_measured:
        return "-"
    if cell.how.other_numbers:
        return "other numbers"
    if cell.is_reference:
        return "reference"
    expected = reference.figures["digests"] if reference is not None and reference.is_measured else {}
    pairs = [(digest, expected.get(step)) for step, digest in result.figures["digests"].items()]
    if any(wanted is None for _, wanted in pairs):
        return "-"
    return "yes" if all(digest == wanted for digest, wanted in pairs) else "no"


def note_of(cell: Cell, result: Result) -> str:
    """The reason for missing figures; for Innkeeper the moved bytes, and whether a plan was followed."""
    if not result.is_measured:
        return result.status.replace("|", "/")
    if not cell.how.is_managed:
        return ""
    note = (
        f"{size(result.figures['moved_bytes'])} moved a step"
        if result.figures["moved_bytes"]
        else "0 B moved"
    )
    if cell.how.plans and result.figures["moved_bytes"] and not result.figures["planned_periods"]:
        note += ", no plan was followed"
    return note


def has_failed(cell: Cell, result: Result | None) -> bool:
    """Of a cell that ran to try its code: whether that code does not work."""
    if result is None:
        return False
    return not result.is_measured and result.status != cell.how.missing(has_gpu=False)
