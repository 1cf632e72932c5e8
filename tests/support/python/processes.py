"""Programs in processes of their own, for the tests of tests/python."""

from __future__ import annotations

import os
import subprocess
import sys

from accelerators import here
from repository import ROOT

NODES = here("sim:2x16MiB,host:1GiB")
"""The nodes of the tests' own process, and by default of those that they start."""


def run_python(
    *arguments: str, nodes: str = NODES, timeout: float = 300, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python with the arguments from the repository's root, with these nodes; captures what it says.

    ``settings``: variables of its environment.
    """
    return run_program(sys.executable, *arguments, nodes=nodes, timeout=timeout, **settings)


def run_program(
    *command: str, nodes: str = NODES, timeout: float = 300, **settings: str
) -> subprocess.CompletedProcess[str]:
    """The same with any program."""
    return subprocess.run(
        command,
        env=os.environ | {"INNKEEPER_NODES": nodes} | settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
