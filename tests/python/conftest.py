"""All tests of one process share its runtime: two simulated GPUs and the host."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator

from processes import NODES

os.environ["INNKEEPER_NODES"] = NODES  # Set before any import of innkeeper.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # Spinning threads slow down a shared machine.

import innkeeper

# PyTorch's own test modules import libraries, of whose settings innkeeper makes managed the choice: children
# of every test would inherit it.
sys.meta_path[:] = [finder for finder in sys.meta_path if "innkeeper" not in type(finder).__module__]

import pytest  # noqa: E402
from budget_fixture import squeeze  # noqa: E402, F401  # these are fixtures
from fake_machine import libraries, machine  # noqa: E402, F401
from managed_scripts import scripts  # noqa: E402, F401
from three_gpus import lines  # noqa: E402, F401
from torchrun import torchrun  # noqa: E402, F401

import torch  # noqa: E402

# A shell makes its background jobs ignore SIGINT, and programs pass that on: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Exempts the objects of imported modules from gc.collect(): many tests call it, and it took 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def sound_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds every test; then verifies the engine's invariants and budgets, and that no memory is kept.

    The children of every later test of the process inherit a test's changes to the environment.
    """
    torch.manual_seed(0)
    before = bytes_kept()
    environment = ours()
    yield
    assert ours() == environment
    innkeeper.manager().check_invariants()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["peak"] <= node["budget"], (name, node)
    if bytes_kept() > before:
        request.node.funcargs.clear()  # Values that other fixtures made.
        # The traceback of a failed test holds its tensors.
        sys.last_value = sys.last_traceback = sys.last_exc = None
        gc.collect()  # Frees tensors in a cycle.
        # Frees copies of CPU tensors that live on, such as a module's constants.
        torch.managed.empty_cache()
        assert bytes_kept() <= before, (
            "managed tensors outlive the test: what follows cannot configure its nodes"
        )


def ours() -> dict[str, str]:
    """The variables that Innkeeper and its tests read or set."""
    prefixes = ("ACCELERATE_", "INNKEEPER_")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}


def bytes_kept() -> int:
    """Bytes of all blocks' replicas."""
    return sum(node["replicas"] for node in innkeeper.stats()["nodes"].values())


@pytest.fixture
def refuse_mixed() -> Iterator[None]:
    """CUDA's rule for one test: an operator refuses CPU tensors together with managed ones."""
    from innkeeper import _C, mixed

    before = _C.moves_cpu_tensors()
    mixed.set_moves(False)
    yield
    mixed.set_moves(before)


@pytest.fixture
def configure() -> Iterator[Callable[[str], None]]:
    """Configures other nodes for one test."""
    gc.collect()  # Frees tensors that an earlier test left in a cycle.
    yield innkeeper.configure
    gc.collect()
    innkeeper.configure(NODES)
