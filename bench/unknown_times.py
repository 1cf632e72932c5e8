"""The gain from plans if the device does not report kernel times, as on a real GPU.

The recorded steps of ``bench/traces`` are played on simulated GPUs that differ from the model. Each kind of
kernel takes half to twice the model's time, and memory and link have 0.6 to all of their rates, drawn from a
seed. Plans are made three times:

``told``: the GPU reports the time of each kernel, as the simulator does;
``model``: a model prices each kernel by its work, and knows nothing of the factors;
``unknown``: kernel times are not available, and plans count bytes.

The table has each as a multiple of ``told``, over all models, GPUs, budgets and seeds, and ``model`` as a
multiple of movement on demand, which needs no plan. Then the same of plans that may recompute, as they do by
default, and those as a multiple of plans that only move.

    python bench/unknown_times.py  # takes ten minutes
    python bench/unknown_times.py --seeds 10 --share 0.9,0.8,0.7,0.6,0.5,0.4  # takes hours
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from support.chosen import chosen, model_of, pattern
from support.distribution import HEAD, Cell, line_of
from support.replayed import replayed

from replay import GPUS, TRACES

WAYS = ("told", "model", "unknown")


def played(record: bytes, gpu: str, seed: int | None, way: str, shares: str) -> list[dict[str, Any]]:
    """The rows of one record on one machine."""
    name, link = GPUS[gpu]
    truth = [] if seed is None else ["--truth", str(seed)]
    words = ["--gpu", name, "--link", link, "--share", shares, "--times", way, *truth]
    rows: list[dict[str, Any]] = replayed(record, *words)["rows"]
    return rows


def cells_of(trace: Path, gpu: str, seed: int | None, shares: str) -> Iterator[Cell]:
    """Seconds a step by each way, for the budgets that fit."""
    record = gzip.decompress(trace.read_bytes())
    for rows in zip(*(played(record, gpu, seed, way, shares) for way in WAYS), strict=True):
        if "failed" in rows[0]:
            continue
        yield {
            "of": trace.name.removesuffix(".trace.gz"),
            "gpu": gpu,
            "seed": seed,
            "share": rows[0]["share"],
            "on_demand": rows[0]["on_demand"]["seconds"],
            **{way: row["planned"]["seconds"] for way, row in zip(WAYS, rows, strict=True)},
            **{f"{way} again": row["recompute"]["seconds"] for way, row in zip(WAYS, rows, strict=True)},
        }


def where(cell: Cell) -> str:
    """Which cell it is."""
    return f"{cell['of']}, {cell['gpu']}, {cell['share']:.0%}, seed {cell['seed']}"


line = partial(line_of, where=where)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=pattern, default="", help="models whose names match")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", default="0.8,0.5", help="rooms, as parts of the peak")
    parser.add_argument("--json", type=Path, help="all cells")
    parser.add_argument("--quick", action="store_true", help="one small model, to see that it works")
    options = parser.parse_args()
    if options.quick:
        options.only, options.share = pattern("lstm"), "0.8"
    traces = chosen(sorted(TRACES.glob("*.trace.gz")), options.only, model_of)
    machines = [(trace, gpu, seed) for trace in traces for gpu in GPUS for seed in range(options.seeds)]
    known = [(trace, gpu, None) for trace in traces for gpu in GPUS]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda at: list(cells_of(*at, options.share)), machines))
        right = list(pool.map(lambda at: list(cells_of(*at, options.share)), known))
    cells = [cell for each in found for cell in each]
    exact = [cell for each in right for cell in each]
    print(f"{f'{len(cells)} cells, {options.seeds} seeds:':31}{HEAD}")
    print(line("by the model, of told", cells, lambda cell: cell["model"] / cell["told"]))
    print(line("unknown, of told", cells, lambda cell: cell["unknown"] / cell["told"]))
    print(line("by the model, of unknown", cells, lambda cell: cell["model"] / cell["unknown"]))
    print(line("by the model, of on demand", cells, lambda cell: cell["model"] / cell["on_demand"]))
    print(line("told, of on demand", cells, lambda cell: cell["told"] / cell["on_demand"]))
    print("\nwith recompute")
    again = "model again"
    print(line("by the model, of told", cells, lambda cell: cell[again] / cell["told again"]))
    print(line("unknown, of told", cells, lambda cell: cell["unknown again"] / cell["told again"]))
    print(line("by the model, of planned", cells, lambda cell: cell[again] / cell["model"]))
    print(line("unknown, of planned", cells, lambda cell: cell["unknown again"] / cell["unknown"]))
    print(line("by the model, of on demand", cells, lambda cell: cell[again] / cell["on_demand"]))
    print(f"\n{len(exact)} cells where the model is right")
    print(line("by the model, of told", exact, lambda cell: cell["model"] / cell["told"]))
    print(line("with recompute", exact, lambda cell: cell[again] / cell["told again"]))
    if options.json:
        options.json.write_text(json.dumps(cells + exact, indent=1))


if __name__ == "__main__":
    main()
