"""Python runs this at its start when the directory is on its path, and it waits for PyTorch.

It hides no other ``sitecustomize``: that is run first. Without PyTorch nothing else happens.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def _run_hidden() -> None:
    """Runs the ``sitecustomize`` that Python would have found without this one."""
    own = str(Path(__file__).parent)
    spec = importlib.machinery.PathFinder.find_spec(
        "sitecustomize", [directory for directory in sys.path if directory != own]
    )
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _AfterTorch:
    """Finds PyTorch as Python does, and imports innkeeper when it has been imported.

    ``managed`` is the name of a package that needs PyTorch, and whose programs may import it first.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in ("torch", "managed"):
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if name == "managed":
            if spec is None and importlib.util.find_spec("torch") is not None:
                import torch  # noqa: F401  (with innkeeper, whose finder is the last that Python asks)
            return None
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_install(module: ModuleType) -> None:
                run(module)
                try:
                    import innkeeper  # noqa: F401  (installs; where it imports PyTorch itself, at its end)
                except ImportError as error:
                    print(
                        f"innkeeper: {sys.executable} cannot import innkeeper, so cuda stays cuda: {error}",
                        file=sys.stderr,
                    )

            spec.loader.exec_module = run_and_install  # type: ignore[method-assign]
        return spec


def _keep_what_says_once() -> None:
    """In the first process: makes the file by which only one process of the run prints a message of all.

    ``src/config/said_once.h`` has the rest.
    """
    if os.environ.get("INNKEEPER_FIRST") == str(os.getpid()):
        file = os.memfd_create("innkeeper-run", os.MFD_CLOEXEC)
        os.environ["INNKEEPER_FIRST"] += f":{file}"


_keep_what_says_once()
sys.meta_path.insert(0, _AfterTorch())
_run_hidden()
