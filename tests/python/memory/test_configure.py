"""Other nodes while memory of the old ones is alive, and settings that are refused."""

from __future__ import annotations

import gc
from collections.abc import Callable

import innkeeper
import pytest

import torch

NODES = "sim:2x16MiB,host:1GiB"


def escape(node: str) -> torch.Tensor:
    """The real memory of a tensor, which its caller keeps after the tensor's end."""
    x = torch.full((1000,), 7.0, device="managed")
    with innkeeper.resident(x, node) as real:
        kept = real.view(-1)
    del real, x
    gc.collect()
    return kept


@pytest.mark.parametrize("node", ["sim:0", "sim:1", "host"])
def test_exposed_memory_is_not_freed_while_in_use(node: str, configure: Callable[[str], None]):
    kept = escape(node)
    for nodes in ("host:64MiB", "sim:4x1MiB,host:64MiB", NODES):
        with pytest.raises(ValueError, match=rf"configure: 4032 B of {node} are still held by somebody"):
            configure(nodes)
    assert innkeeper.manager().nodes.keys() == {"sim:0", "sim:1", "host"}
    assert kept.cpu().sum().item() == 7000
    assert torch.ones(10, device="managed").sum().item() == 10  # The old machine works.
    del kept
    configure("sim:4x1MiB,host:64MiB")
    stats = innkeeper.stats()["nodes"]
    assert all(row["resident"] == row["recount"] == 0 for row in stats.values())


@pytest.mark.parametrize(
    "nodes", ["gpu:1GiB", "sim:1MiB,disk:/nowhere:1GiB", "disk:/proc/self:1GiB", "cuda:7", "host:1EiB"]
)
def test_what_is_refused_leaves_the_old_machine_working(nodes: str):
    before = innkeeper.manager().nodes.keys()
    with pytest.raises(ValueError, match="INNKEEPER_NODES"):
        innkeeper.configure(nodes)
    assert innkeeper.manager().nodes.keys() == before
    x = torch.arange(100.0, device="managed")
    innkeeper.evict(x)
    assert x.sum().item() == 4950
    with pytest.raises(ValueError, match="managed storages are alive"):
        innkeeper.configure(NODES)


def test_configured_a_thousand_times(configure: Callable[[str], None]):
    for n in range(300):
        configure("sim:1MiB,host:8MiB" if n % 2 else "host:8MiB")
        assert torch.full((10,), 1.0 * n, device="managed").sum().item() == 10 * n
