"""Our CUDA part on the fake runtime, in this process: two GPUs, of which a test uses one or both.

Run by `make cuda` (tier one), which sets the environment.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("FAKE_CUDA_GPUS", "2")
os.environ.setdefault("FAKE_CUDA_MEMORY", str(256 << 20))
os.environ.setdefault("INNKEEPER_NODES", "cuda:0:64MiB,host:1GiB")
# Measurements of fake GPUs must not reach the user's programs.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="innkeeper.")

import fake
import pytest
from torchrun import torchrun  # noqa: F401  # a fixture


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not fake.IS_HERE:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="the fake runtime is not here; run make cuda"))


@pytest.fixture(scope="session", autouse=True)
def cache() -> Iterator[None]:
    """Removes the measurements."""
    yield
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.fixture(autouse=True)
def sound() -> Iterator[None]:
    """Begins with one GPU of 64 MiB; ends without violations, and with books that agree with a recount."""
    import innkeeper

    import torch

    sys.last_traceback = sys.last_value = None  # The traceback of a failed test may hold tensors.
    gc.collect()
    torch.cuda.init()
    torch.cuda.set_device(0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    innkeeper.configure("cuda:0:64MiB,host:1GiB")
    torch.manual_seed(0)
    yield
    fake.ask("cancel_failures")
    innkeeper.manager().check_invariants()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["peak"] <= node["budget"], (name, node)
        assert node["recount"] == node["resident"], (name, node)
    assert fake.ask("violations") == 0


@pytest.fixture
def late() -> Iterator[None]:
    """Makes work run as late as it may for one test; restores the run's mode afterwards."""
    with fake.late():
        yield
