"""Prints the build's facts about this Python and its PyTorch, as CMake assignments.

PyTorch is found but not imported, so that this takes no time and needs none of the libraries it loads. Exits
with 1 and one line on standard error if there is no PyTorch.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import shutil
import sys
import sysconfig
from pathlib import Path

# The CUDA headers that Innkeeper's sources and PyTorch's headers include; two packages contain them.
CUDA_HEADERS = ("cuda.h", "cuda_runtime_api.h", "crt/host_defines.h")


def cuda_include_dirs(site: Path) -> list[str]:
    """Directories that hold CUDA's headers: CUDA_HOME's, those of pip's packages in `site`, a toolkit's.

    Empty where no candidate is complete. PyTorch's own packages lack crt/, which Triton brings.
    """
    compiler = shutil.which("nvcc")
    packages = sorted(site.glob("nvidia/*/include"))  # match PyTorch by construction
    candidates = [
        [Path(os.environ["CUDA_HOME"]) / "include"] if "CUDA_HOME" in os.environ else [],
        packages,
        [Path(compiler).resolve().parent.parent / "include"] if compiler else [],
        [Path("/usr/local/cuda/include")],
        [*packages, site / "triton/backends/nvidia/include"],
    ]
    for places in candidates:
        directories = [
            directory for place in places for directory in (place, place / "cccl") if directory.is_dir()
        ]
        if all(any((directory / header).exists() for directory in directories) for header in CUDA_HEADERS):
            return [str(directory) for directory in directories]
    return []


def main() -> int:
    """Writes the assignments to standard output."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        print(f"{sys.executable} has no PyTorch", file=sys.stderr)
        return 1
    directory = Path(found.origin).parent
    version = runpy.run_path(str(directory / "version.py"))
    facts = {
        "DIR": str(directory),
        "VERSION": version["__version__"],
        "CUDA": version["cuda"] or "",
        "CUDA_INCLUDE_DIRS": ";".join(cuda_include_dirs(directory.parent)) if version["cuda"] else "",
        "PYTHON_INCLUDE_DIR": sysconfig.get_paths()["include"],
        "PYTHON_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
    }
    for name, value in facts.items():
        print(f'set(INNKEEPER_TORCH_{name} "{value}")')
    return 0


if __name__ == "__main__":
    sys.exit(main())
