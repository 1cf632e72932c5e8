"""Random programs on managed tensors equal the same on plain ones (walk.py does the work)."""

from __future__ import annotations

import os

import pytest
from processes import RunProgram


@pytest.mark.slow
def test_random_programs_equal_plain_pytorch(run_python: RunProgram):
    done = run_python("tests/support/python/walk.py", nodes="host:1GiB", timeout=600)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
    steps, evictions = (int(done.stdout.splitlines()[-1].split()[n]) for n in (0, 8))
    assert steps >= int(os.environ.get("INNKEEPER_STEPS") or 3000) and evictions > 100
