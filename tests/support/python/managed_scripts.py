"""Scripts in processes of their own: by Python, and by ``python -m innkeeper``, which makes cuda managed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from repository import ROOT

SCRIPTS = ROOT / "tests" / "scripts"
REPORT = SCRIPTS / "report"
AMPLE = "sim:{}x256MiB,host:1GiB"


def python(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python as a shell would, in a folder of its own, on one processor core."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("INNKEEPER_", "CUDA_"))}
    return subprocess.run(
        [sys.executable, *words],
        env=kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def managed(folder: Path, nodes: str, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Runs a script by ``python -m innkeeper``, and gives what ``innkeeper.stats()`` said at its end."""
    stats = folder / "stats.json"
    stats.unlink(missing_ok=True)
    done = python(
        folder,
        *("-m", "innkeeper", *words),
        INNKEEPER_NODES=nodes,
        PYTHONPATH=str(REPORT),
        INNKEEPER_TEST_STATS=str(stats),
    )
    return done, json.loads(stats.read_text()) if stats.exists() else {}


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "innkeeper", *words, **({"INNKEEPER_NODES": AMPLE.format(2)} | environment))


def ok(folder: Path, code: str, **environment: str) -> str:
    """What a script prints that is run by ``python -m innkeeper``."""
    script = folder / "script.py"
    script.write_text(code)
    done = run(folder, "script.py", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def plain(folder: Path, code: str, **environment: str) -> tuple[str, str]:
    """What a script says that imports innkeeper itself, and what it warns of."""
    (folder / "script.py").write_text("import innkeeper\n" + code)
    done = python(folder, "script.py", INNKEEPER_NODES="sim:1x64MiB,host:1GiB", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, "\n".join(
        line for line in done.stderr.splitlines() if "innkeeper is imported" in line
    )
