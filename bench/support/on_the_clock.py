"""Training steps on a simulated GPU's clock, with plans and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WARM_UP = 8  # steps, after which a plan is followed
WAYS = {  # name: settings
    "on demand": {"INNKEEPER_PLANNING": "off"},
    "planned": {"INNKEEPER_PLANNING": "on"},
    "recompute": {"INNKEEPER_PLANNING": "on", "INNKEEPER_RECOMPUTE": "on"},
}


def measured(step: Callable[[], object], steps: int) -> dict[str, Any]:
    """The time of each of ``steps`` steps, after those in which plans are made.

    Returns:
        ``seconds`` and bytes ``fetched``, of a step; of the last round ``bytes_bound`` and ``time_bound``, as
        ``innkeeper.stats()`` has them; and the ``peak`` of the GPU, in bytes.

    """
    import innkeeper

    import torch

    for _ in range(WARM_UP):
        step()
    torch.accelerator.synchronize()
    before = innkeeper.stats()
    for _ in range(steps):
        step()
    torch.accelerator.synchronize()
    after = innkeeper.stats()
    return {
        "seconds": (after["simulated_seconds"] - before["simulated_seconds"]) / steps,
        "fetched": (after["bytes_fetched"] - before["bytes_fetched"]) / steps,
        "bytes_bound": after["bytes_bound"],
        "time_bound": after["time_bound"],
        "peak": after["nodes"]["sim:0"]["peak"],
    }
