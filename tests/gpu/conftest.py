"""Tests that need a CUDA GPU: they train and allocate on `cuda:0` with a budget far below its memory.

They run with `make gpu`, one process for all tests but those with settings of their own. See gpu_device.py
for trying them without a GPU.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

# cuBLAS asks for this where bits are compared, and its usual workspace is larger than these budgets.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "128")  # KiB, at most cuBLAS's.

import gpu_device
import pytest

import torch

BUDGET = 256 * gpu_device.MIB
os.environ["INNKEEPER_NODES"] = gpu_device.nodes(BUDGET)  # Set before any import of innkeeper.


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: needs a real GPU, not a simulated one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = gpu_device.why_not()
    for item in items:
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif not gpu_device.REAL and item.get_closest_marker("real"):
            item.add_marker(pytest.mark.skip(reason="the GPU is simulated"))


@pytest.fixture(autouse=True)
def sound_engine() -> Iterator[None]:
    """Starts each test with the same nodes and empty counters; verifies the engine's invariants after it."""
    if gpu_device.why_not() is not None:
        yield
        return
    import innkeeper

    gc.collect()  # Frees tensors of the last test, or the nodes could not change.
    if gpu_device.REAL:
        torch.cuda.init()  # Before it torch.cuda's statistics are 0.
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    innkeeper.configure(nodes=gpu_device.nodes(BUDGET))
    torch.manual_seed(0)
    yield
    innkeeper.manager().check_invariants()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["peak"] <= node["budget"], (name, node)
