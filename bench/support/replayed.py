"""The output of ``innkeeper replay`` for a record."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).parent / "innkeeper"  # the program of this environment


def replayed(record: bytes | Path, *options: str, program: Path = PROGRAM) -> dict[str, Any]:
    """Plays a record on a simulated machine.

    Args:
        record: its text, or the file of one.
        options: of ``innkeeper replay``, as ``"--gpu", "H100"``.
        program: that plays it.

    Raises:
        SystemExit: it cannot be played; says why.

    """
    file, text = (record, None) if isinstance(record, Path) else ("-", record)
    command = [program, "replay", file, "--json", *options]
    done = subprocess.run(command, input=text, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode())
    found: dict[str, Any] = json.loads(done.stdout)
    return found
