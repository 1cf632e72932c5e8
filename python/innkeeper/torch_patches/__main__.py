"""``python -m innkeeper.torch_patches``: prints the table of patches, for ``innkeeper doctor --patches``."""

from __future__ import annotations

import json
import sys

import torch
from innkeeper import torch_patches


def main(words: list[str]) -> int:
    """Prints each row and whether this process has applied it; ``--json``: for programs."""
    if words not in ([], ["--json"]):
        print("usage: python -m innkeeper.torch_patches [--json]", file=sys.stderr)
        return 2
    applied = set(torch_patches.installed().values())
    rows = torch_patches.PATCHES
    if words:
        keys = ("target", "why", "torch_versions", "test", "when", "upstream")
        listed = [{key: getattr(row, key) for key in keys} | {"applied": row in applied} for row in rows]
        print(json.dumps({"schema": 1, "torch": str(torch.__version__), "patches": listed}, indent=2))
        return 0
    for row in rows:
        print(f"{'applied' if row in applied else 'waits':8}{row.target}\n{'':8}{row.why}")
        print(f"{'':8}PyTorch {row.torch_versions}; applied by: {row.when}")
        if row.upstream:
            print(f"{'':8}unnecessary with: {row.upstream}")
    print(f"\n{len(rows)} patches, {len(applied)} applied in a process that has imported innkeeper")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
