"""Refuses scripts that hide a module from the scripts beside them.

`python bench/overhead.py` looks for modules in bench/ first: with a bench/queue.py, `import torch` fails,
because PyTorch imports Python's `queue`. So no file or directory beside a script may have the name of a
module of Python's library, of this package, or of a package in pyproject.toml. Modules of packages (beside an
__init__.py) are imported by longer names, so they may.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from needs import strings_of

TOP = Path(__file__).resolve().parent.parent
DIRECTORIES = ["bench", "cmake", "docs", "examples", "python", "src", "tests", "tools"]
GROUPS = ["requires", "test", "demo", "lint"]
OURS = {"innkeeper", "torch"}


def taken(project: str) -> set[str]:
    """Names of modules that no script may have; `project` is the text of pyproject.toml."""
    needs = [re.split(r"[^\w-]", need)[0] for group in GROUPS for need in strings_of(group, project)]
    return set(sys.stdlib_module_names) | OURS | {need.lower().replace("-", "_") for need in needs}


def shadows(top: Path, names: set[str]) -> list[str]:
    """One line for each script or directory of scripts that hides a module."""
    files = [path for directory in DIRECTORIES for path in (top / directory).rglob("*.py")] + list(
        top.glob("*.py")
    )
    scripts = {path for path in files if not (path.parent / "__init__.py").exists()}
    packages = {path.parent for path in files if path.name == "__init__.py"}
    beside = {package for package in packages if any(script.parent == package.parent for script in scripts)}
    return [
        f"{path.relative_to(top)} hides the module {path.stem} from the scripts beside it: rename it"
        for path in sorted(scripts | beside)
        if path.stem in names
    ]


def main() -> int:
    """Checks the repository; returns the exit status."""
    found = shadows(TOP, taken((TOP / "pyproject.toml").read_text()))
    print("\n".join(found) if found else "scripts: none is named as a module of Python")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
