"""Runs a script of scripts/ as ``python SCRIPT`` does, and writes its ``results``.

    python tests/compat/run_script.py REPORT SCRIPT [--managed]

With --managed `import innkeeper` goes before it, and that is all. Of several processes the first one writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from torch.utils._pytree import tree_flatten

import torch


def digest(result: Any) -> str:
    """Digest of the bits alone, the same on any device; words in the place of a result stay words."""
    if isinstance(result, str):
        return result
    leaves, shape = tree_flatten(result)
    said = hashlib.sha256(str(shape).encode())
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            held = leaf.detach().cpu().contiguous()
            said.update(str(held.dtype).encode() + held.reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            said.update((leaf.hex() if isinstance(leaf, float) else repr(leaf)).encode())
    return said.hexdigest()[:16]


def main() -> None:
    """Runs the script; a failure of the script is a failure of this process."""
    report, script, *options = sys.argv[1:]
    if options == ["--managed"]:
        import innkeeper
    sys.argv = [script]
    found = {name: digest(result) for name, result in runpy.run_path(script)["results"].items()}
    told: dict[str, Any] = {"results": found}
    if options:
        told["stats"] = innkeeper.stats()
    if os.environ.get("RANK", "0") == "0":
        Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
