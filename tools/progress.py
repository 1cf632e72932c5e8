"""Runs a build by ninja and shows how far it is, in one line: progress.py LOG WHAT COMMAND...

    Compiling core, which needs no PyTorch: 12 of 27, about 1 min left

The build's whole output goes to LOG; its end is shown if the build fails. The exit status is the command's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

STEP = re.compile(r"\[(\d+)/(\d+)\] ")
COMPILER_ERROR = re.compile(r":\d+:\d+: (?:fatal )?error: |undefined reference")
SECONDS_BETWEEN_LINES = 15  # used if the output is no terminal
FOR_AN_ESTIMATE = 3  # steps: the first are CMake's own, or the longest
LAST = 60  # lines of the log, after a failure


def left(done: int, total: int, seconds: float) -> str:
    """About how long the rest takes, if it goes on as so far."""
    rest = seconds / done * (total - done)
    return f"about {rest / 60:.0f} min left" if rest >= 90 else f"about {max(rest, 1):.0f} s left"


def follow(lines: Iterable[str], log: TextIO, what: str, out: TextIO) -> None:
    """Shows the progress that `lines` tell of, and keeps them in `log`."""
    began = time.monotonic()
    terminal, total, shown = out.isatty(), 0, began
    for line in lines:
        log.write(line)
        step = STEP.search(line)
        if step is None:
            continue
        done, total, now = int(step[1]), int(step[2]), time.monotonic()
        said = f"Compiling {what}: {done} of {total}"
        if done >= FOR_AN_ESTIMATE:
            said += f", {left(done, total, now - began)}"
        if terminal:
            out.write(f"\r\033[K{said}")
            out.flush()
        elif now - shown >= SECONDS_BETWEEN_LINES and done < total:
            print(said, file=out, flush=True)
            shown = now
    if total > 0:
        end = "\r\033[K" if terminal else ""
        print(
            f"{end}Compiled {what}: {total} steps in {time.monotonic() - began:.0f} s", file=out, flush=True
        )


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    path, what, command = Path(arguments[0]), arguments[1], arguments[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", errors="replace") as log:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as build:
            assert build.stdout is not None
            follow(build.stdout, log, what, sys.stdout)
        status = build.returncode
    if status != 0:
        lines = path.read_text(errors="replace").splitlines()
        print("\n".join(lines[-LAST:]))
        errors = [line for line in lines if COMPILER_ERROR.search(line)]
        print("", *errors[:LAST], f"All of it: {path}", sep="\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
