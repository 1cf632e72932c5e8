"""``torch.compile`` on machines with cards and without, which share a cache of what was compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# What it computes is exact in any order and by any kernel. (A sine is another where Inductor compiles it.)
SCRIPT = """
import innkeeper, torch

def f(x, w):
    return torch.relu(x @ w).mul(0.5).sum(-1)

y = torch.compile(f)(torch.ones(8, 8, device="managed"), torch.ones(8, 8, device="managed"))
ops = {name: each["ops"] for name, each in innkeeper.stats()["nodes"].items()}
print(sum(ops.values()), ops["host"], y.sum().item())
"""


def compiled_on(nodes: str, cache: Path) -> list[str]:
    """Operators, those on the host, and the result."""
    settings = {"INNKEEPER_NODES": nodes, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.split()


def test_what_was_compiled_on_a_machine_without_cards_does_not_run_beside_one(tmp_path: Path):
    total, on_host, result = compiled_on("host:1GiB", tmp_path)
    assert total == on_host
    assert any(tmp_path.iterdir()), "there is nothing to take"
    assert compiled_on("cuda:0:64MiB,host:1GiB", tmp_path)[1:] == ["0", result]
