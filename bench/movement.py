"""How well copies overlap with kernels, on the simulator's clock: the same on every machine and run.

Each case is a process of its own, on a simulated GPU without data. ``wanted`` is the longer of the kernels
and the copies alone; a case that hides the one behind the other takes no longer than that. ``host`` is the
ratio of the host's peak to the bytes that do not fit on the GPU.

    python bench/movement.py
    python bench/movement.py --json movement.json --steps 4
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from support.apart import found_apart

SIDE = 16384  # side of the matrices that are multiplied; 1 GiB each
KERNELS = 10
MOVED = 32768  # side of the matrix that moves: 4 GiB
WARM_UP = 6  # steps, after which a plan is followed
SHARES = (0.9, 0.7, 0.5)  # parts of the training step's peak
H100 = "data=off,gpu=H100,link=PCIe 5 x16"  # machine for the kernels
A100 = "data=off"  # machine for the training step: the simulator's default, with PCIe 4


@dataclass
class Row:
    """One case: seconds of simulated time."""

    name: str
    seconds: float
    wanted: float
    host: float | None = None

    @property
    def ratio(self) -> float:
        """Of the two."""
        return self.seconds / self.wanted


def simulated(name: str, *arguments: str, nodes: str, sim: str, planning: str = "on") -> dict[str, float]:
    """The result of case ``name`` of this file in a process of its own on these nodes."""
    settings = {"INNKEEPER_SIM": sim, "INNKEEPER_PLANNING": planning}
    found: dict[str, float] = found_apart("--case", name, *arguments, what=name, nodes=nodes, **settings)
    return found


def overlap(name: str) -> dict[str, float]:
    """Runs one of the cases of kernels beside one copy of 4 GiB."""
    import innkeeper

    import torch

    def now() -> float:
        return innkeeper.stats()["simulated_seconds"]

    a, b, c = (torch.empty(SIDE, SIDE, device="managed") for _ in range(3))
    moved = torch.empty(MOVED, MOVED, device="managed")
    moved.zero_()
    torch.mm(a, b, out=c)
    torch.accelerator.synchronize()

    def kernels() -> None:
        for _ in range(KERNELS):
            torch.mm(a, b, out=c)

    def evict() -> None:
        innkeeper.evict(moved)

    def fetch() -> None:
        innkeeper.prefetch(moved, "sim:0")

    def timed(*parts: Callable[[], None]) -> float:
        torch.accelerator.synchronize()
        start = now()
        for part in parts:
            part()
        torch.accelerator.synchronize()
        return now() - start

    found = {"kernels": timed(kernels)}
    if name == "kernels, fetch":
        evict()
        found["seconds"] = timed(kernels, fetch)
        evict()
        found["copy"] = timed(fetch)
    elif name == "evict dirty, kernels":
        found["seconds"] = timed(evict, kernels)
    else:
        found["seconds"] = timed(kernels, evict, kernels)
        found["kernels"] *= 2
    if "copy" not in found:
        fetch()
        moved.zero_()
        found["copy"] = timed(evict)
    return found


HINTS = 16


def behind_hints() -> dict[str, float]:
    """An operator needs a tensor of 1 GiB when 16 others have just been prefetched."""
    import innkeeper

    import torch

    hints = [torch.zeros(SIDE, SIDE, device="managed") for _ in range(HINTS)]
    wanted = torch.zeros(SIDE, SIDE, device="managed")
    for tensor in (*hints, wanted):
        innkeeper.evict(tensor)

    def seconds(part: Callable[[], object]) -> float:
        torch.accelerator.synchronize()
        start = innkeeper.stats()["simulated_seconds"]
        part()
        return innkeeper.stats()["simulated_seconds"] - start

    alone = seconds(wanted.sum)
    torch.accelerator.synchronize()
    innkeeper.evict(wanted)

    def behind() -> None:
        for tensor in hints:
            innkeeper.prefetch(tensor, "sim:0")
        wanted.sum()

    return {"alone": alone, "seconds": seconds(behind)}


OVERLAPS = ("kernels, fetch", "evict dirty, kernels", "kernels, evict dirty, kernels")


def step_of_a_gpt() -> Callable[[], None]:
    """A training step of a GPT of 6 layers, width 256, batch 8 x 64."""
    from torch.nn import functional as F
    from train_text import GPT

    import torch

    torch.manual_seed(0)
    model = GPT(65, 64, 256, 6, 4, 0.0).to("managed")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    x = torch.zeros(8, 64, dtype=torch.long, device="managed")

    def step() -> None:
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def training(steps: int) -> dict[str, float]:
    """Simulated seconds of such a step, and the GPU's peak."""
    import innkeeper

    import torch

    step = step_of_a_gpt()
    for _ in range(WARM_UP):
        step()
    torch.accelerator.synchronize()
    innkeeper.manager().reset_stats()
    start = innkeeper.stats()
    for _ in range(steps):
        step()
    torch.accelerator.synchronize()
    end = innkeeper.stats()
    return {
        "seconds": (end["simulated_seconds"] - start["simulated_seconds"]) / steps,
        "peak": end["nodes"]["sim:0"]["peak"],
        "host": end["nodes"]["host"]["peak"],
        "fetched": (end["bytes_fetched"] - start["bytes_fetched"]) / steps,
        "written": (end["bytes_written_back"] - start["bytes_written_back"]) / steps,
        "bound": end["bytes_bound"] or 0,
    }


def main() -> None:
    """Runs all cases and prints their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10, help="training steps that are measured")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--quick", action="store_true", help="one training step: to see that it works")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.steps = 1
    if args.case == "training":
        print(json.dumps(training(args.steps)))
        return
    if args.case == "hints":
        print(json.dumps(behind_hints()))
        return
    if args.case is not None:
        print(json.dumps(overlap(args.case)))
        return
    rows = []
    for name in OVERLAPS:
        found = simulated(name, nodes="sim:1x40GiB,host:40GiB", sim=H100)
        rows.append(Row(name, found["seconds"], max(found["kernels"], found["copy"])))
    found = simulated("hints", nodes="sim:1x40GiB,host:40GiB", sim=H100)
    rows.append(Row(f"a fetch behind {HINTS} prefetches (wanted: alone)", found["seconds"], found["alone"]))
    fits = simulated("training", "--steps", str(args.steps), nodes="sim:1x1GiB,host:4GiB", sim=A100)
    for share in SHARES:
        nodes = f"sim:1x{int(share * fits['peak'])}B,host:4GiB"
        for planning, how in (("off", "on demand"), ("on", "planned")):
            found = simulated(
                "training", "--steps", str(args.steps), nodes=nodes, sim=A100, planning=planning
            )
            moved = f"{found['fetched'] / 1e6:.0f} MB in, {found['written'] / 1e6:.0f} MB out"
            if found["bound"]:
                moved += f"; no plan has less than {found['bound'] / 1e6:.0f} MB in"
            name = f"GPT step at {share:.0%} of its peak, {how} ({moved})"
            out = fits["peak"] - int(share * fits["peak"])
            rows.append(Row(name, found["seconds"], fits["seconds"], found["host"] / out))
    table = Table("case", "simulated ms", "wanted ms", "ratio", "host", title="on the simulator's clock")
    for row in rows:
        host = "" if row.host is None else f"{row.host:.2f}"
        times = (f"{1e3 * seconds:.2f}" for seconds in (row.seconds, row.wanted))
        table.add_row(row.name, *times, f"{row.ratio:.2f}", host)
    Console().print(table)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))


if __name__ == "__main__":
    main()
