"""docs/compatibility.md, made of what ``make compat`` found.

python tests/compat/page.py build/compat/architectures.json docs/compatibility.md
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HEAD = """# What runs on managed

Written by `make compat` ({commit}), with PyTorch {torch} and transformers {transformers}.

## Architectures of transformers

Each from random weights, made small, in training mode: forward, backward and two steps of AdamW, on one
simulated GPU with room for all and with 60 % of the peak that this took. *The same*: losses and all weights
have the CPU's bits, both times. *Not tried*: it could not be made small, or does not run on the CPU, or
differs there from one run to the next.

| | architectures |
|---|---|
| the same | {same} |
| differ | {differs} |
| fail | {fails} |
| not tried | {not tried} |

To keep to 60 % of the peak (or 128 KiB) {moved} of the same evicted tensors, {evictions:,} times in all.
"""


def names(rows: list[Row]) -> str:
    """In lines of a document."""
    text = ", ".join(sorted(row["name"] for row in rows)) or "none"
    return textwrap.fill(text + ".", 120, break_long_words=False, break_on_hyphens=False)


def table(rows: list[Row]) -> str:
    """Those that are not the same, with the reason."""
    lines = ["| architecture | task | why |", "|---|---|---|"]
    for row in sorted(rows, key=lambda row: row["name"]):
        why = row["why"].replace("|", "/").replace("<", "(").replace(">", ")")
        lines.append(f"| {row['name']} | {row['task']} | {why} |")
    return "\n".join(lines)


def page(found: dict[str, Any]) -> str:
    """The document."""
    by_result: defaultdict[str, list[Row]] = defaultdict(list)
    for row in found["rows"]:
        by_result[row["result"]].append(row)
    evictions = [row["evictions"] for row in by_result["same"] if row["evictions"] > 0]
    counts = {result: len(by_result[result]) for result in ("same", "differs", "fails", "not tried")}
    text = HEAD.format(**found["versions"], **counts, evictions=sum(evictions), moved=len(evictions))
    wrong = by_result["differs"] + by_result["fails"]
    if wrong:
        text += f"\n### Not the same\n\n{table(wrong)}\n"
    text += f"\n### The same\n\n{names(by_result['same'])}\n"
    return text + f"\n### Not tried\n\n{table(by_result['not tried'])}\n"


def main() -> None:
    """Reads the rows, writes the page."""
    source, target = map(Path, sys.argv[1:])
    target.write_text(page(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
