"""Checks that Innkeeper's CUDA allocator forwards every virtual function that PyTorch's header declares.

A function that PyTorch has added and that is not forwarded compiles, and silently runs the base class's code.
Used by tools/check_torch.sh. Exits with 1 and one line for each function that is missing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

FORWARDING = Path(__file__).resolve().parent.parent / "src/torch/cuda/forwarding.h"
# The header, and the class whose virtual functions are meant.
BASES = (
    ("c10/core/Allocator.h", "Allocator"),
    ("c10/core/CachingDeviceAllocator.h", "DeviceAllocator"),
    ("c10/cuda/CUDACachingAllocator.h", "CUDAAllocator"),
)


def class_body(text: str, name: str) -> str:
    """The text between the braces of class or struct `name`. Raises ValueError where it is not defined."""
    found = re.search(rf"^(?:class|struct)\s+(?:\w+_API\s+)?{name}\b[^;{{]*\{{", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no class {name}")
    end = re.compile(r"^\};", re.MULTILINE).search(text, found.end())
    return text[found.end() : end.start() if end else len(text)]


def virtual_functions(body: str) -> set[str]:
    """Names of the virtual functions that a class body declares, without its destructor."""
    return set(re.findall(r"\bvirtual\b[^;{}()]*?\b(\w+)\s*\(", re.sub(r"//.*", "", body))) - {"Allocator"}


def main(include: Path) -> int:
    """`include`: a PyTorch's directory of headers."""
    ours = re.sub(r"^#.*", "", FORWARDING.read_text(), flags=re.MULTILINE)
    forwarded = set(re.findall(r"\b(\w+)\([^;{}]*\)\s*(?:const\s*)?override", ours))
    missing = 0
    for header, name in BASES:
        functions = virtual_functions(class_body((include / header).read_text(), name))
        if not functions:
            print(f"{include / header}: no virtual function found in {name}")
            missing += 1
        for function in sorted(functions - forwarded):
            print(f"{FORWARDING.name} does not forward {name}::{function}")
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
