"""The fastest form of an optimizer if a model does not fit: one call for each tensor, lists, or fused.

Training steps of the models of ``bench/traces``, without data, on a simulated GPU with less and less memory,
each in a process of its own. Times are the simulator's, in milliseconds a step, of steps after those in which
plans are made: with memory for all, and with a part of the peak, ``on demand`` without plans and
``recompute`` with plans that may recompute blocks. AdamW's forms are PyTorch's own: ``foreach=False``, the
default, which uses lists, and ``fused=True``, which reads each tensor once.

    python bench/optimizers.py
    python bench/optimizers.py --only bert-large --share 0.6
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from support.apart import found_apart
from support.on_the_clock import WAYS, measured

sys.path.insert(0, str(Path(__file__).resolve().parent / "traces"))

SIM = "gpu=H100,link=PCIe 5 x16,data=off"
FORMS: dict[str, dict[str, bool]] = {
    "for each tensor": {"foreach": False},
    "default": {},
    "fused": {"fused": True},
}


def train(name: str, form: str, steps: int) -> dict[str, Any]:
    """The time of a step, in this process."""
    import innkeeper  # noqa: F401  the device
    from models import CASES

    return measured(CASES[name].training(**FORMS[form]), steps)


def run(name: str, form: str, steps: int, space: str, settings: dict[str, str]) -> dict[str, Any]:
    """The same in a process of its own, on a GPU with the given budget."""
    words = ("--case", name, "--form", form, "--steps", steps)
    nodes = f"sim:{space},host:2TiB"
    found: dict[str, Any] = found_apart(
        *words, what=f"{name} with {space}", nodes=nodes, INNKEEPER_SIM=SIM, **settings
    )
    return found


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="gpt2-medium", help="one of the models of bench/traces")
    parser.add_argument("--share", default="0.8,0.5", help="of the peak")
    parser.add_argument("--steps", type=int, default=6, help="that are measured")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="one cell: to see that it works")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(train(args.case, args.form, args.steps)))
        return
    forms = list(FORMS)
    if args.quick:
        args.only, args.share, args.steps, forms = "lstm", "0.8", 2, ["fused"]
    table = Table("model", "optimizer", "room for all", "room", *WAYS)
    rows = []
    for form in forms:
        whole = run(args.only, form, args.steps, "4TiB", {})
        for share in map(float, args.share.split(",")):
            space = f"{int(share * whole['peak'])}B"
            found = {way: run(args.only, form, args.steps, space, settings) for way, settings in WAYS.items()}
            times = [f"{1e3 * row['seconds']:.1f}" for row in (whole, *found.values())]
            table.add_row(args.only, form, times[0], f"{share:.0%}", *times[1:])
            rows.append({"model": args.only, "form": form, "share": share, "whole": whole, **found})
    Console(soft_wrap=True, width=120).print(table)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
