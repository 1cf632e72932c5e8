"""A case of a benchmark in a process of its own, whose device no other case has used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"  # the cases train models from there


def found_apart(*words: object, what: str, nodes: str, **settings: str) -> Any:
    """The JSON that the calling benchmark prints when it runs with these words, on these nodes.

    Args:
        words: of its command line.
        what: for the message of a failure, which ends the benchmark.
        nodes: in the grammar of ``INNKEEPER_NODES``.
        settings: more variables of its environment.

    """
    path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, sys.argv[0], *map(str, words)],
        env=os.environ | {"INNKEEPER_NODES": nodes, "PYTHONPATH": path} | settings,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{what} failed:\n{done.stderr}")
    return json.loads(done.stdout)
