"""Tests that need a CUDA card: they train and allocate on `cuda:0` with a budget far below what it has.

They run with `make gpu`, one process for all but what needs settings of its own.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

MIB = 1 << 20
BUDGET = 256 * MIB
NODES = "cuda:0:256MiB,host:4GiB"
os.environ["INNKEEPER_NODES"] = NODES  # before anything imports innkeeper
# cuBLAS asks for this where bits are compared, and its usual workspace is larger than these budgets.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
os.environ["CUBLASLT_WORKSPACE_SIZE"] = "1024"  # KiB

import pytest  # noqa: E402

import torch  # noqa: E402

HAS_CARD = torch.version.cuda is not None and torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_CARD:
        return
    why = (
        "PyTorch finds no CUDA device"
        if torch.version.cuda is not None
        else f"PyTorch {torch.__version__} was built without CUDA"
    )
    for item in items:
        item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def sound_engine() -> Iterator[None]:
    """Starts each test with the same nodes and empty counters; verifies the engine's invariants after it."""
    if not HAS_CARD:
        yield
        return
    import innkeeper

    gc.collect()  # managed tensors of the last test, or the nodes could not change
    innkeeper.configure(nodes=NODES)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    yield
    innkeeper.manager().check_invariants()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["peak"] <= node["budget"], (name, node)


def run_python(script: str, timeout: float = 500, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own with these variables; captures what it says."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
