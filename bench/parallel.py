"""DataParallel and DistributedDataParallel on two and four simulated GPUs, each at half of its peak.

A GPT of 4 layers, width 256, is trained on the same batches: on one GPU with memory for all of it, by
``nn.DataParallel`` over 2 and 4 GPUs in one process, whose replicas share the parameters (one device) or
have copies (``devices="each"``, PyTorch's own code), and by ``DistributedDataParallel`` in 2 and 4 processes
with a GPU each. ``half`` is a run in which each GPU has half of the peak that it had with memory for all; it
must give the same bits. ``forward`` is an inference of such a batch. The distance to one GPU's result is
rounding: kernels may add in another order if a batch is smaller, and gradients are summed over the processes.

    python bench/parallel.py
    python bench/parallel.py --json parallel.json --steps 8
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SHORT = {
    "one": "one",
    "DataParallel": "DP",
    "DataParallel, each": "DP/each",
    "DistributedDataParallel": "DDP",
}
WAYS = tuple(SHORT)
AMPLE = 512 << 20
INFERENCES = 4
ALIGNMENT = 64  # bytes; budgets are multiples of it


def train(way: str, steps: int, out: Path) -> None:
    """One process: trains, and writes its results."""
    import innkeeper
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel
    from train_text import GPT

    import torch
    import torch.distributed as dist

    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if way == "DistributedDataParallel":
        dist.init_process_group()
    if way == "DataParallel, each":
        innkeeper.configure(os.environ["INNKEEPER_NODES"], devices="each")
    torch.manual_seed(0)
    model = GPT(65, 64, 256, 4, 4, 0.0).to("managed")
    wrapped = {
        "one": lambda: model,
        "DataParallel": lambda: torch.nn.DataParallel(model),
        "DataParallel, each": lambda: torch.nn.DataParallel(model),
        "DistributedDataParallel": lambda: DistributedDataParallel(model),
    }[way]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    texts = torch.randint(65, (steps, 16, 65), generator=torch.Generator().manual_seed(1))
    losses = []
    start = innkeeper.stats()["simulated_seconds"]
    for text in texts:
        part = text.chunk(processes)[rank].to("managed")
        loss = F.cross_entropy(wrapped(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        if processes > 1:
            dist.all_reduce(mean)
        losses.append(mean.item() / processes)
    stats = innkeeper.stats()
    inputs = texts[0].chunk(processes)[rank].to("managed")[:, :-1]
    with torch.no_grad():
        for _ in range(INFERENCES):
            wrapped(inputs).sum().item()
    seconds = innkeeper.stats()["simulated_seconds"] - stats["simulated_seconds"]
    weights = hashlib.sha256()
    for value in model.state_dict().values():
        weights.update(value.cpu().numpy().tobytes())
    found = {
        "losses": losses,
        "weights": weights.hexdigest(),
        "milliseconds": (stats["simulated_seconds"] - start) / steps * 1e3,
        "forward": seconds / INFERENCES * 1e3,
        "evictions": stats["evictions"] / steps,
        "peaks": [row["peak"] for name, row in stats["nodes"].items() if name.startswith("sim:")],
    }
    (out / f"{rank}.json").write_text(json.dumps(found))
    if way == "DistributedDataParallel":
        dist.destroy_process_group()


def run(way: str, gpus: int, steps: int, budgets: list[int]) -> dict[str, Any]:
    """The result of a run in processes of its own: the largest peak of a process, the sum of evictions."""
    processes = gpus if way == "DistributedDataParallel" else 1
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    nodes = ",".join(f"sim:{budget}B" for budget in budgets[: gpus // processes])
    path = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    settings = {"INNKEEPER_NODES": f"{nodes},host:2GiB", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [*python, __file__, "--train", way, "--steps", str(steps), "--out", directory],
            env=os.environ | settings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        all_found = [json.loads(file.read_text()) for file in sorted(Path(directory).glob("*.json"))]
        if done.returncode != 0 or len(all_found) != processes:
            raise SystemExit(f"{way} on {gpus} failed:\n{done.stderr}")
    if len({found["weights"] for found in all_found}) != 1:
        raise SystemExit(f"{way} on {gpus}: the processes' weights differ")
    return all_found[0] | {
        "milliseconds": max(found["milliseconds"] for found in all_found),
        "forward": max(found["forward"] for found in all_found),
        "evictions": sum(found["evictions"] for found in all_found),
        "peaks": [max(peaks) for peaks in zip(*(found["peaks"] for found in all_found), strict=True)],
    }


def main() -> None:
    """Runs all and prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6, help="of training, in each run (6)")
    parser.add_argument("--quick", action="store_true", help="one step, two GPUs: to see that it works")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--train", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        train(options.train, options.steps, options.out)
        return
    steps = 1 if options.quick else options.steps
    cases = [("one", 1), *((way, gpus) for way in WAYS[1:] for gpus in ((2,) if options.quick else (2, 4)))]
    table = Table(title="A GPT by DataParallel (DP) and DistributedDataParallel (DDP)")
    columns = ("", "GPUs", "peak MiB", "ample ms", "half ms", "forward ms", "evicted", "bits", "to one")
    for column in columns:
        table.add_column(column, justify="left" if column == "" else "right")
    rows: list[dict[str, Any]] = []
    for way, gpus in cases:
        ample = run(way, gpus, steps, [AMPLE] * gpus)
        half = run(way, gpus, steps, [peak // 2 // ALIGNMENT * ALIGNMENT for peak in ample["peaks"]])
        same = half["losses"] == ample["losses"] and half["weights"] == ample["weights"]
        rows.append({"way": way, "gpus": gpus, "ample": ample, "half": half, "same": same})
        far = max(abs(a - b) / b for a, b in zip(ample["losses"], rows[0]["ample"]["losses"], strict=True))
        table.add_row(
            SHORT[way], str(gpus), f"{max(ample['peaks']) / 2**20:.1f}",
            *(f"{each['milliseconds']:.2f}" for each in (ample, half)),
            f"{ample['forward']:.2f}", f"{half['evictions']:.0f}",
            "equal" if same else "DIFFER", f"{far:.0e}",
        )  # fmt: skip
    Console().print(table)
    print(
        "Peak: of the GPU that has most. Times: a step, and an inference with room for all, on the\n"
        "simulator's clock, of the slowest process. Evicted: replicas a step, of all GPUs. To one: the\n"
        "largest relative distance of a loss from one GPU's."
    )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2))
    if not all(row["same"] for row in rows):
        raise SystemExit("at half of the peak the bits differ")


if __name__ == "__main__":
    main()
