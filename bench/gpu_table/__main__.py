"""Measures training programs under one cap of GPU memory, and prints the table for docs/gpu-results.md.

Each cell of the table (a workload, a cap, a way of having the memory) is a process of its own with a time
limit. Its result goes to a file at once, so a run that ends early loses one cell, and the next run goes on
with the cells that have no result of this commit, GPU and PyTorch.

Without a GPU each of Innkeeper's ways runs at the smallest shape on a simulated GPU, and the code of each
rival once on the CPU: that shows that the code works, and measures nothing.

    python bench/gpu_table
    python bench/gpu_table --all --minutes 60
    python bench/gpu_table --print
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # The directory where this package lies.

from rich.console import Console
from support.chosen import chosen, pattern

from gpu_table import gpu_tests, measure, results, runner, table
from gpu_table.cells import DEFAULT, Cell, all_cells, trial_cells
from gpu_table.results import Result


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/gpu_table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="run all cells, not the default selection")
    parser.add_argument("--again", action="store_true", help="run also the cells that have a result")
    parser.add_argument(
        "--only", type=pattern, default="", metavar="PATTERN", help="run the cells whose names match"
    )
    parser.add_argument(
        "--minutes", type=float, default=6, help="begin no cell that would end later (default 6)"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="the file of results")
    parser.add_argument("--list", action="store_true", help="print the cells and their estimates, run none")
    parser.add_argument("--print", action="store_true", help="print the table of the results, run no cell")
    parser.add_argument(
        "--tests", type=Path, metavar="FILE", help="print what tests/gpu measured as rows, run no cell"
    )
    parser.add_argument("--trial", action="store_true", help="run as on a machine without a GPU")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    return parser.parse_args()


def where(cells: list[Cell]) -> str:
    """The device of the cells' estimates."""
    return " on an H200" if any(not cell.trial for cell in cells) else ""


def listed(cells: list[Cell], console: Console) -> None:
    """Prints the cells and how long they may take."""
    for cell in cells:
        console.print(f"{cell.estimate_s:5.0f} s  {cell.key}", highlight=False)
    total = sum(cell.estimate_s for cell in cells)
    console.print(f"{len(cells)} cells, about {total / 60:.1f} minutes{where(cells)}")


def main() -> int:
    """Runs the command line; returns the exit status."""
    args = parsed()
    console = Console(soft_wrap=True, stderr=True)
    if args.tests is not None:
        return gpu_tests.main(args.tests)
    if args.cell:
        cells = trial_cells() if args.trial else all_cells()
        print(json.dumps(measure.run(next(cell for cell in cells if cell.key == args.cell))))
        return 0
    machine = results.this_machine()
    trial = args.trial or not machine.gpu
    every = trial_cells() if trial else all_cells() if args.all else list(DEFAULT)
    cells = chosen(every, args.only, lambda cell: cell.key)
    path = args.results or results.default_file(trial)
    if args.list:
        listed(cells, Console(soft_wrap=True))
        return 0
    left: list[runner.Left] = []
    if not args.print:
        total = sum(cell.estimate_s for cell in cells)
        console.print(f"{len(cells)} cells, about {total / 60:.1f} minutes{where(cells)}; results: {path}")
        with console.status("") as status:

            def tell(cell: Cell, result: Result | None) -> None:
                status.update(cell.key)
                if result is not None:
                    console.print(f"{result.wall_s:6.1f} s  {cell.key}: {result.status}", highlight=False)

            left = runner.run_all(cells, machine, path, args.minutes, args.again or trial, tell)
    known = results.latest(results.load(path), machine)
    print("\n".join(table.lines(cells, known, machine, trial)))
    for one in left:
        if one.reason != "it has a result":
            print(f"\nLeft out: {one.cell.key}: {one.reason}.")
    failed = [cell.key for cell in cells if trial and table.has_failed(cell, known.get(cell.key))]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
