"""Scripts that launch Triton's kernels on the fake GPU: its interpreter computes or records them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

INTERPRETED = {"TRITON_INTERPRET": "1"}
LAUNCH = re.compile(r"no GPU runs (\w+) here, launched at GPU (\d+)")  # a kernel's name, and the GPU


def run(script: str, nodes: str, cache: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Result of a script, which must end well."""
    directories = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"INNKEEPER_NODES": nodes} | directories | settings,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done
