"""Fails where a file is longer than its cap. With --list it prints the files and lines of each directory.

A file over its cap needs a line in tools/loc_allowed.txt: `PATH LINES REASON`, its own cap and why.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

TOP = Path(__file__).parent.parent
ALLOWED = TOP / "tools" / "loc_allowed.txt"
CAPS = dict.fromkeys(("src", "include", "python", "tools", "cmake", "bench", "examples"), 500)
CAPS["tests"] = 800  # a table of cases is long, and read one row at a time
SUFFIXES = {".h", ".cc", ".py", ".sh", ".cmake"}


def allowed_caps() -> dict[str, int]:
    """Path -> cap, of the files that may be longer than their directory's."""
    caps = {}
    for line in ALLOWED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            path, lines, reason = line.split(maxsplit=2)
            if not (TOP / path).exists():
                raise SystemExit(f"{ALLOWED.name}: {path} is gone; remove its line ({reason})")
            caps[path] = int(lines)
    return caps


def main(arguments: list[str]) -> int:
    """Counts and checks; returns the exit status."""
    caps = allowed_caps()
    lines_of: Counter[str] = Counter()
    files_of: Counter[str] = Counter()
    too_long = []
    for top, cap in CAPS.items():
        for path in sorted((TOP / top).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            name = path.relative_to(TOP).as_posix()
            lines = len(path.read_text().splitlines())
            directory = "/".join(name.split("/")[:2]) if name.count("/") > 1 else top
            lines_of[directory] += lines
            files_of[directory] += 1
            if lines > caps.get(name, cap):
                too_long.append(f"{name}: {lines} lines, cap {caps.get(name, cap)}")
    if "--list" in arguments:
        for directory in sorted(lines_of):
            print(f"{directory:24} {files_of[directory]:4} files {lines_of[directory]:6} lines")
    print(f"sizes: {files_of.total()} files, {lines_of.total()} lines, {len(too_long) or 'none'} too long")
    if too_long:
        print("\nToo long; split, or say why not in tools/loc_allowed.txt:", *too_long, sep="\n")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
