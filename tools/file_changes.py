"""Counts how often control changes file inside src/residency during one fetch with a dirty victim.

The program tools/file_changes/fetch.cc is compiled with -finstrument-functions, so each function of a .cc
file of src/residency is noted as it is entered and left. Functions of headers are part of their caller. A
change is a step from a function of one file to a function of another, by a call or by its return. The second
figure counts steps from one part of the engine to another, as tools/check_layers.py names the parts; `block`
and `books` hold the data that all parts share, so there their functions are part of their caller, too.

Usage: file_changes.py [--list]. Requires `make check` once: the core's other layers are linked from
build/dev.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

TOP = Path(__file__).parent.parent
BUILD = TOP / "build" / "dev" / "src"
OTHERS = ("replay", "sim", "trace", "plan", "policy", "cost", "device", "config", "base")
DATA = ("block/", "books/")
UNCOUNTED = "/usr/,/include/,.h"


def compiled(directory: Path) -> Path:
    """The program, with src/residency instrumented and the other layers as they are built."""
    sources = sorted((TOP / "src" / "residency").rglob("*.cc"))
    libraries = [BUILD / name / f"libinnkeeper_{name}.a" for name in OTHERS]
    missing = [str(path.relative_to(TOP)) for path in libraries if not path.exists()]
    if missing:
        raise SystemExit(f"{', '.join(missing)}: not built; run make check first")
    flags = [
        "-std=c++20",
        "-O0",
        "-g1",
        "-I",
        str(TOP / "src"),
        "-I",
        str(TOP / "include"),
        "-I",
        str(TOP / "tests"),
    ]
    counted = ["-finstrument-functions", f"-finstrument-functions-exclude-file-list={UNCOUNTED}"]
    objects = []
    for source in [*sources, *sorted((TOP / "tests" / "support").glob("faulty_device*.cc"))]:
        target = directory / f"{source.stem}.o"
        ours = counted if source in sources else []
        subprocess.run(["c++", *flags, *ours, "-c", str(source), "-o", str(target)], check=True)
        objects.append(str(target))
    program = directory / "fetch"
    subprocess.run(
        ["c++", *flags, str(TOP / "tools" / "file_changes" / "fetch.cc"), *objects, "-Wl,--start-group",
         *map(str, libraries), "-Wl,--end-group", "-pthread", "-ldl", "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def files_of(program: Path, offsets: list[str]) -> dict[str, tuple[str, str]]:
    """Offset -> the function's name and its file below src/residency."""
    told = subprocess.run(
        ["addr2line", "-f", "-C", "-e", str(program), *offsets], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = {}
    for offset, name, place in zip(offsets, told[::2], told[1::2], strict=True):
        found[offset] = (name.split("(")[0], place.split(":")[0].rpartition("src/residency/")[2])
    return found


def main() -> int:
    """Prints the count, and with --list each change."""
    with tempfile.TemporaryDirectory() as scratch:
        program = compiled(Path(scratch))
        run = subprocess.run([str(program)], capture_output=True, text=True, check=True)
        steps = [line.split() for line in run.stdout.splitlines()]
        places = files_of(program, sorted({offset for _, offset in steps}))
    stack: list[tuple[str, str]] = []
    changes: list[str] = []
    for kind, offset in steps:
        name, file = places[offset]
        if kind == "+":
            if stack and stack[-1][1] != file:
                changes.append(f"{stack[-1][1]} -> {file}: {name}")
            stack.append((name, file))
            continue
        stack.pop()
        if stack and stack[-1][1] != file:
            changes.append(f"{file} -> {stack[-1][1]}: back from {name}")
    if "--list" in sys.argv:
        print("\n".join(changes))
    files = {line.split(" -> ")[0] for line in changes}
    print(f"one fetch with a dirty victim: {len(changes)} changes of file among {len(files)} files")
    visited = [changes[0].split(" -> ")[0], *(line.split(" -> ")[1].split(": ")[0] for line in changes)]
    parts = [name.split("/")[0].removesuffix(".cc") for name in visited if not name.startswith(DATA)]
    between = sum(before != after for before, after in pairwise(parts))
    print(f"{between} changes of part among {len(set(parts))}: {', '.join(sorted(set(parts)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
