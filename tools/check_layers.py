"""Holds every #include between the directories of src/ to the layer table.

The table is CMake's list of links: `innkeeper_layer(name DEPS ...)` in each core directory, `set(CLI_DEPS
...)` of the program, and the rows below for the two directories that need PyTorch. A directory may include
itself, the directories that it links, directly or indirectly, and the public headers, which include no file
of src/. PyTorch is for src/torch, src/bindings and include/innkeeper/torch alone, Python for src/bindings.
INNER_ROWS orders the directories inside a directory.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TOP = Path(__file__).parent.parent
SRC = TOP / "src"
PUBLIC = TOP / "include" / "innkeeper"
PUBLIC_LAYER, PUBLIC_TORCH_LAYER = "include/innkeeper", "include/innkeeper/torch"
TORCH_ROWS = {"torch": {"residency", "board", "trace", "sim", "config"}, "bindings": {"torch", "lease"}}
# Directories inside a directory, lowest first: a file may include only files of its own directory and of rows
# above its own. "." are the files beside the directories that have no row of their own name.
INNER_ROWS = {
    "torch": (
        (".",), ("process",), ("registry",), ("memory",), ("accelerator",), ("cuda", "sim"), ("random",),
        ("operator",), ("kernels",), ("distributed",), ("start",),
    ),
    "cli": ((".",), ("gpus",), ("grant",), ("doctor", "measure", "queue", "setup"), ("main",)),
    # The engine's parts: a file beside the directories has a row of its own.
    "residency": (
        ("block",), ("books",), ("movement",), ("evictor",), ("operands",), ("recomputer",),
        ("plan_executor",), ("requests", "invariants"), ("engine",),
    ),
}  # fmt: skip
# Directories whose files form no circle: a header and its .cc count as one.
WITHOUT_CIRCLES = ("plan", "policy", "trace", "replay", "residency")
PROGRAM_ROW = re.compile(r"set\(\s*CLI_DEPS\s+([\w\s]+)\)")
LAYER = re.compile(r"innkeeper_layer\(\s*(\w+)(?:\s+DEPS\s+([\w\s]+))?\)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
FOREIGN = {
    "PyTorch": (re.compile(r"(torch|ATen|c10|caffe2)/"), {"torch", "bindings", PUBLIC_TORCH_LAYER}),
    "Python": (
        re.compile(
            r"(Python\.h|pybind11/|torch/extension\.h|torch/csrc/(?!distributed/c10d/|autograd/(?!python)))"
        ),
        {"bindings"},
    ),
}


def direct_links() -> dict[str, set[str]]:
    """Directory -> the directories that its target links."""
    table = {name: set(links) for name, links in TORCH_ROWS.items()}
    for listing in sorted(SRC.glob("*/CMakeLists.txt")):
        match = LAYER.search(listing.read_text())
        if match is not None:
            table[match.group(1)] = set((match.group(2) or "").split())
    table["cli"] = set(PROGRAM_ROW.findall((SRC / "cli" / "CMakeLists.txt").read_text())[0].split())
    return table


def reach(layer: str, table: dict[str, set[str]]) -> set[str]:
    """The directories that `layer` may include: its own and all it links, directly or not."""
    seen: set[str] = set()
    waiting = [layer]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(table[name])
    return seen


def cycles(table: dict[str, set[str]]) -> list[str]:
    """One line for each directory that reaches itself through others."""
    return [
        f"{name}: links itself, through {link}"
        for name, links in table.items()
        for link in links
        if name in reach(link, table)
    ]


def sources_of(layer: Path) -> list[Path]:
    """The C++ files of a directory, however deep."""
    return sorted(path for path in layer.rglob("*") if path.suffix in (".h", ".cc"))


def problems_of(path: Path, layer: str, allowed: set[str], layers: set[str]) -> list[str]:
    """One line for each #include of `path` that its directory may not have."""
    found = []
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        quote, name = match.groups()
        place = f"{path.relative_to(TOP)}:{text.count(chr(10), 0, match.start(2)) + 1}"
        first = name.split("/")[0]
        ours = quote == '"' and first in layers and (SRC / name).exists()
        if ours:
            if first not in allowed:
                found.append(f"{place}: {layer} may not include {name}, only {sorted(allowed)}")
            continue
        for what, (pattern, where) in FOREIGN.items():
            if pattern.match(name) and layer not in where:
                found.append(f"{place}: only {' and '.join(sorted(where))} may include {what}'s {name}")
        if quote == '"' and first in layers:
            found.append(f"{place}: {name} does not exist")
    return found


def directory_of(path: Path, layer: str) -> str:
    """The entry of INNER_ROWS that stands for a file of src/LAYER."""
    parts = path.relative_to(SRC / layer).parts
    if len(parts) > 1:
        return parts[0]
    return path.stem if any(path.stem in row for row in INNER_ROWS[layer]) else "."


def inner_problems(layer: str) -> list[str]:
    """One line for each #include that goes upward or sideways between the directories of a directory."""
    level = {name: number for number, row in enumerate(INNER_ROWS[layer]) for name in row}
    found = []
    for path in sources_of(SRC / layer):
        own = directory_of(path, layer)
        if own not in level:
            found.append(f"{path.relative_to(TOP)}: {own} has no row in INNER_ROWS")
            continue
        for _, name in INCLUDE.findall(path.read_text()):
            if not name.startswith(f"{layer}/") or not (SRC / name).exists():
                continue
            other = directory_of(SRC / name, layer)
            if other != own and level.get(other, len(level)) >= level[own]:
                found.append(f"{path.relative_to(TOP)}: {own} may not include {name}")
    return found


def circles_of_files(layer: str) -> list[str]:
    """One line for each file of a directory that includes itself through others."""
    table: dict[str, set[str]] = {}
    for path in sources_of(SRC / layer):
        own = str(path.relative_to(SRC).with_suffix(""))
        names = {name.removesuffix(".h") for _, name in INCLUDE.findall(path.read_text())}
        table.setdefault(own, set()).update(names - {own})
    known = {name: links & set(table) for name, links in table.items()}
    return [f"src/{line}" for line in cycles(known)]


def main() -> int:
    """Checks all of src/; returns the exit status."""
    table = direct_links()
    layers = {path.name for path in SRC.iterdir() if path.is_dir()}
    found = [f"src/{name} is no layer: it has no innkeeper_layer()" for name in sorted(layers - set(table))]
    found += [f"{name}: no layer {link} to link" for name in table for link in table[name] - set(table)]
    if not found:
        found = cycles(table)
    checked = 0
    if not found:
        for layer in sorted(layers):
            for path in sources_of(SRC / layer):
                checked += 1
                found += problems_of(path, layer, reach(layer, table), layers)
        for path in sources_of(PUBLIC):
            checked += 1
            with_torch = (PUBLIC / "torch") in path.parents
            found += problems_of(path, PUBLIC_TORCH_LAYER if with_torch else PUBLIC_LAYER, set(), layers)
        for layer in sorted(INNER_ROWS):
            found += inner_problems(layer)
        for layer in WITHOUT_CIRCLES:
            found += circles_of_files(layer)
    print("\n".join(found) if found else f"layers: {checked} files keep to the table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
