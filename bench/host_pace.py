"""The gain from plans that know the host's speed, if the host is as slow as the GPU or slower.

The recorded steps of ``bench/traces`` are played on simulated GPUs whose host takes the given microseconds to
launch each kernel. Plans are made twice: with the host's clock and the node's, and with the node's alone. The
table has the first as a multiple of the second, over all models, GPUs, budgets and host speeds.

    python bench/host_pace.py
    python bench/host_pace.py --only lstm --pace 50
"""

from __future__ import annotations

import argparse
import gzip
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path

from support.chosen import chosen, model_of, numbers, pattern
from support.distribution import HEAD, Cell, line_of
from support.replayed import replayed

from replay import GPUS, TRACES

WAYS = {"plans that move": "planned", "with recompute": "recompute"}


def cells_of(trace: Path, gpu: str, pace: float, shares: str) -> list[Cell]:
    """For each budget that fits: seconds a step with two clocks over those with one."""
    name, link = GPUS[gpu]
    words = ["--gpu", name, "--link", link, "--share", shares, "--host-pace", str(pace)]
    record = gzip.decompress(trace.read_bytes())
    two, one = (replayed(record, *words, *more)["rows"] for more in ([], ["--one-clock"]))
    return [
        {
            "of": trace.name.removesuffix(".trace.gz"),
            "gpu": gpu,
            "pace": pace,
            "share": both[0]["share"],
            **{way: both[0][way]["seconds"] / both[1][way]["seconds"] for way in WAYS.values()},
        }
        for both in zip(two, one, strict=True)
        if "failed" not in both[0]
    ]


def where(cell: Cell) -> str:
    """Which cell it is."""
    return f"{cell['of']}, {cell['gpu']}, {cell['share']:.0%}, {cell['pace']:g} us"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=pattern, default="", help="models whose names match")
    parser.add_argument("--pace", type=numbers, default="20,50", help="of the host, us a kernel")
    parser.add_argument("--share", default="0.9,0.7,0.5", help="rooms, as parts of the peak")
    parser.add_argument("--quick", action="store_true", help="one small model, to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.only, options.share, options.pace = pattern("lstm"), "0.8", [50.0]
    traces = chosen(sorted(TRACES.glob("*.trace.gz")), options.only, model_of)
    machines = [(trace, gpu, pace) for trace in traces for gpu in GPUS for pace in options.pace]
    with ThreadPoolExecutor(2) as pool:
        cells = [
            cell for each in pool.map(lambda at: cells_of(*at, options.share), machines) for cell in each
        ]
    print(f"{f'two clocks, of one: {len(cells)} cells':31}{HEAD}")
    for what, way in WAYS.items():
        print(line_of(what, cells, itemgetter(way), where))


if __name__ == "__main__":
    main()
