"""``python -m innkeeper.measure_gpus``: measures the GPUs that CUDA shows this process, for later programs.

``innkeeper calibrate`` runs it while it holds leases on them. It stores their operations and bytes per second
in the user's cache, where programs find them.
"""

from __future__ import annotations

import os

import innkeeper
import torch
from innkeeper import _C

MEMORY = 2 << 30
"""Bytes, or half of a smaller GPU: its budget, of which an eighth is used, beside what CUDA itself takes."""


def main() -> None:
    """Prints each GPU's rates.

    Raises:
        SystemExit: there is no GPU that can be measured, or nothing was found out about one.

    """
    if "INNKEEPER_NODES" not in os.environ:
        count = torch.cuda.device_count()
        if count == 0:
            raise SystemExit("CUDA shows no GPU to this Python's PyTorch")
        sizes = [torch.cuda.get_device_properties(index).total_memory for index in range(count)]
        nodes = [f"cuda:{index}:{min(MEMORY, size // 2)}B" for index, size in enumerate(sizes)]
        innkeeper.configure(",".join([*nodes, "host:1GiB"]))
    _C.start()
    measured = _C.measure_gpus()
    for node, rates in measured:
        if rates:
            print(f"{node}: {rates}")
    unknown = [node for node, rates in measured if not rates]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: nothing was measured, there is too little room or time")
    if not measured:
        raise SystemExit("no node is a GPU that hides its kernels' times")


if __name__ == "__main__":
    main()
