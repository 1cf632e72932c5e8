"""Makes docs/compatibility.md from the results of ``make compat``: a file of rows for each of its parts.

python tests/compat/page.py build/compat docs/compatibility.md
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import adapters
import other_devices

Row = dict[str, Any]

HEAD = """# What runs on managed

Written by `make compat`, on one simulated GPU. What differs from the CPU in a script of your own may be what
it draws at random: on the CPU there is one stream of random numbers; on managed, as on CUDA, there are the
CPU's (a DataLoader that shuffles draws from it) and the device's (dropout).

`paged_adamw` of bitsandbytes is not needed here, nor `optim="paged_adamw_32bit"` of Trainer: the states of
every optimizer are paged, those of `torch.optim.AdamW` too. Nor are `save_on_cpu`,
`enable_model_cpu_offload()` of diffusers and offloaded caches: the device moves what does not fit.

Operators of libraries and your own (`torch.library`) run by their kernel for CUDA or the CPU, whichever is
behind the device; a general one is taken where there is none. `torch.library.opcheck` has a list of devices,
and does not try gradients here. Where the host computes, `bnb.nn.Linear4bit` in eval() packs its weights for
AVX-512 on tensors of the CPU's alone, and rounds otherwise there.

## Models

Each from random weights, made small, in training mode: forward, backward and two steps of AdamW, with room
for all and with 60 % of the peak that this took. *The same*: losses and all weights have the CPU's bits, both
times. *Not tried*: it could not be made small, or does not run on the CPU, or differs there from one run to
the next.
"""
MODELS = """
### {library}

At {commit}, with {library} {version} and PyTorch {torch}. To keep to 60 % of the peak (or 128 KiB), runs of
{moved} of the models that are the same evicted tensors, {evictions:,} times in all.

| | models |
|---|---|
| the same | {same} |
| differ | {differs} |
| fail | {fails} |
| not tried | {not tried} |
"""
SCRIPTS = """
## Scripts of libraries

`tests/compat/scripts`: small models and data, written as the libraries' documentation does. Nothing in them
is about managed but `import innkeeper` before them; those that choose a device ask `torch.accelerator`. Each
runs on the CPU, with room for all, and with half of the peak that this took (or 128 KiB). *The same*: losses,
weights and what else it computes have the CPU's bits, both times.

{versions}
"""
LIBRARIES = ("transformers", "timm", "diffusers")


def names(rows: list[Row]) -> str:
    """Text in lines of a document."""
    text = ", ".join(sorted(row["name"] for row in rows)) or "none"
    return textwrap.fill(text + ".", 120, break_long_words=False, break_on_hyphens=False)


def safe(why: str) -> str:
    """Text of a cell of a table."""
    return why.replace("|", "/").replace("<", "(").replace(">", ")")


def table(rows: list[Row]) -> str:
    """Rows that are not the same, with the reason."""
    lines = ["| model | task | why |", "|---|---|---|"]
    for row in sorted(rows, key=lambda row: row["name"]):
        lines.append(f"| {row['name']} | {row['task']} | {safe(row['why'])} |")
    return "\n".join(lines)


def models(library: str, found: dict[str, Any]) -> str:
    """Section on a library's models."""
    by_result: defaultdict[str, list[Row]] = defaultdict(list)
    for row in found["rows"]:
        by_result[row["result"]].append(row)
    evictions = [row["evictions"] for row in by_result["same"] if row["evictions"] > 0]
    counts = {result: len(by_result[result]) for result in ("same", "differs", "fails", "not tried")}
    versions = {"library": library, "version": found["versions"][library]} | found["versions"]
    text = MODELS.format(**versions, **counts, evictions=sum(evictions), moved=len(evictions))
    if wrong := by_result["differs"] + by_result["fails"]:
        text += f"\nNot the same:\n\n{table(wrong)}\n"
    text += f"\nThe same:\n\n{names(by_result['same'])}\n"
    if by_result["not tried"]:
        text += f"\nNot tried:\n\n{table(by_result['not tried'])}\n"
    return text


def scripts(found: dict[str, Any]) -> str:
    """Section on the scripts: a row each, and one for each of their results that differs."""
    versions = found["versions"]
    named = (f"{name} {version}" for name, version in sorted(versions.items()) if name != "commit")
    said = textwrap.fill(f"At {versions['commit']}, with {', '.join(named)}.", 120, break_on_hyphens=False)
    text = SCRIPTS.format(versions=said)
    lines = ["| script | result | evictions at half | of which |", "|---|---|---|---|"]
    wrong = ["| script | what | why |", "|---|---|---|"]
    for row in found["rows"]:
        parts = [part for part in row.get("parts", []) if part not in row.get("wrong", [])]
        result = {"differs": "partly" if parts else "differs"}.get(row["result"], row["result"])
        lines.append(f"| {row['name']} | {result} | {row.get('evictions', '')} | {'; '.join(parts)} |")
        if row["why"]:
            wrong.append(f"| {row['name']} | {'; '.join(row.get('wrong', []))} | {safe(row['why'])} |")
    text += "\n" + "\n".join(lines) + "\n"
    if len(wrong) > 2:
        text += "\nNot the same:\n\n" + "\n".join(wrong) + "\n"
    return text


def main() -> None:
    """Reads the rows of each part that ran, and writes the page."""
    directory, target = map(Path, sys.argv[1:])
    found = {file.stem: json.loads(file.read_text()) for file in directory.glob("*.json")}
    text = HEAD + "".join(models(library, found[library]) for library in LIBRARIES if library in found)
    if "scripts" in found:
        text += scripts(found["scripts"])
    if "adapters" in found:
        text += adapters.section(found["adapters"])
    if "other_devices" in found:
        text += "\n" + other_devices.section(found["other_devices"])
    target.write_text(text)


if __name__ == "__main__":
    main()
