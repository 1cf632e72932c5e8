"""Requirements of this environment's PyTorch beside NVIDIA's packages, for pip; --cuda: its CUDA version.

PyTorch is not imported, because its libraries need a driver.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import runpy
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

LEFT_OUT = ("nvidia-", "cuda-")


def needs() -> list[str]:
    """PyTorch's own requirements that hold here, less the GPU's."""
    found = []
    for line in importlib.metadata.requires("torch") or []:
        requirement = Requirement(line)
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and not requirement.name.startswith(LEFT_OUT):
            found.append(f"{requirement.name}{requirement.specifier}")
    return found


def cuda() -> str:
    """The release of CUDA, as in 13.0; empty for a build without."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return ""
    return runpy.run_path(str(Path(found.origin).parent / "version.py"))["cuda"] or ""


if __name__ == "__main__":
    print(cuda() if "--cuda" in sys.argv else " ".join(needs()))
