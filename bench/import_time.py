"""The time that `import innkeeper` adds to `import torch`, and the first tensor on its device to that.

Each in a process of its own, in turn, timed inside it, so the time to start Python is not part of it. Beside
them stands the time of `import torch` and of a first tensor on the CPU in the same process. The target is
100 ms.

    python bench/import_time.py
    python bench/import_time.py --rounds 40
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

SCRIPT = """
import json, sys, time
began = time.perf_counter()
import torch
imported = time.perf_counter()
torch.ones(1)
plain = time.perf_counter()
import innkeeper
ours = time.perf_counter()
torch.ones(1, device="managed")
print(json.dumps([1e3 * each for each in (
    imported - began, plain - imported, ours - plain, time.perf_counter() - ours)]))
"""
WHAT = ("import torch", "a first tensor, cpu", "import innkeeper", "a first tensor, managed")


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="once, to see that it works")
    args = parser.parse_args()
    settings = {
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # import torch would import innkeeper
        "INNKEEPER_NODES": os.environ.get("INNKEEPER_NODES", "sim:1x1GiB,host:1GiB"),
    }
    found: list[list[float]] = []
    for _ in range(1 if args.quick else args.rounds):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    print(f"{len(found)} processes; ms    {'median':>8} {'least':>8} {'most':>8}")
    for what, row in zip(WHAT, zip(*found, strict=True), strict=True):
        print(f"{what:24} {statistics.median(row):8.1f} {min(row):8.1f} {max(row):8.1f}")


if __name__ == "__main__":
    main()
