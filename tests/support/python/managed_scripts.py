"""Scripts in processes of their own: by Python, and by ``python -m innkeeper``, which makes cuda managed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from processes import RunProgram
from repository import ROOT

SCRIPTS = ROOT / "tests" / "scripts"
REPORT = SCRIPTS / "report"
AMPLE = "sim:{}x256MiB,host:1GiB"


@dataclass
class Scripts:
    """Runs scripts in the test's own directory."""

    directory: Path
    run_program: RunProgram

    def write(self, code: str) -> str:
        """Writes script.py with this text, and returns its name."""
        (self.directory / "script.py").write_text(code)
        return "script.py"

    def python(
        self, *words: str, directory: Path | None = None, input: str | None = None, **environment: str
    ) -> CompletedProcess[str]:
        """Runs Python as a shell would, on one processor core."""
        others = ("INNKEEPER_", "CUDA_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        env = kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environment
        return self.run_program(sys.executable, *words, env=env, cwd=directory or self.directory, input=input)

    def managed(self, nodes: str, *words: str) -> tuple[CompletedProcess[str], dict[str, Any]]:
        """Runs a script by ``python -m innkeeper``, and returns ``innkeeper.stats()`` at its end."""
        stats = self.directory / "stats.json"
        stats.unlink(missing_ok=True)
        done = self.python(
            *("-m", "innkeeper", *words),
            INNKEEPER_NODES=nodes,
            PYTHONPATH=str(REPORT),
            INNKEEPER_TEST_STATS=str(stats),
        )
        return done, json.loads(stats.read_text()) if stats.exists() else {}

    def run(self, *words: str, **environment: str) -> CompletedProcess[str]:
        """Runs a script by ``python -m innkeeper`` with two GPUs."""
        return self.python("-m", "innkeeper", *words, **({"INNKEEPER_NODES": AMPLE.format(2)} | environment))

    def ok(self, code: str, **environment: str) -> str:
        """Output of a script that ``python -m innkeeper`` runs."""
        done = self.run(self.write(code), **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plain(self, code: str, **environment: str) -> tuple[str, str]:
        """Output of a script that imports innkeeper itself, and its warnings."""
        script = self.write("import innkeeper\n" + code)
        done = self.python(script, INNKEEPER_NODES="sim:1x64MiB,host:1GiB", **environment)
        assert done.returncode == 0, done.stderr
        warned = [line for line in done.stderr.splitlines() if "innkeeper is imported" in line]
        return done.stdout, "\n".join(warned)


@pytest.fixture
def scripts(run_program: RunProgram, tmp_path: Path) -> Scripts:
    """Runs scripts in tmp_path."""
    return Scripts(tmp_path, run_program)
