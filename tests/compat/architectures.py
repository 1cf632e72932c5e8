"""Compares every small model of a library on managed with the CPU, bit for bit.

Each model has random weights, made by its own classes, in training mode and with its dropout. It makes two
steps of AdamW: on the CPU, on the managed device with free space for all, and with 60 % of the peak of that
run, on one simulated GPU. Losses and all weights are compared. Each model runs in a child process, so that a
crash or hang is one row. of_*.py in this directory chooses the models and makes them small.

    python tests/compat/architectures.py transformers --json build/compat/transformers.json
    python tests/compat/architectures.py timm --only 'vit.*'
"""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["INNKEEPER_NODES"] = "sim:1x2GiB,host:2GiB"

import innkeeper
from report import options, write
from subject import Candidate, Subject
from torch.utils._pytree import tree_map_only
from torchvision_import import make_importable

import torch

SHARE = 0.6
STEPS = 2
LIMIT_S = 300
MOST_PARAMETERS = 30_000_000  # Larger models could not be made small.
SMALLEST = 1 << 17  # Smallest budget, bytes.
LIBRARIES = ("transformers", "timm", "diffusers")
KNOWN_TO_DIFFER = {"big_bird", "m2m_100", "nllb-moe", "seamless_m4t", "seamless_m4t_v2"}
"""Models that draw from the CPU's generator and the device's, so that not even CUDA has the CPU's bits."""


def train(model: torch.nn.Module, subject: Subject, device: str) -> list[str]:
    """Makes two steps; returns the losses and a hash of all weights."""
    torch.manual_seed(2)
    model.to(device).train()
    inputs = tree_map_only(torch.Tensor, lambda value: value.to(device), subject.inputs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    said = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = subject.loss(model, inputs)
        loss.backward()
        optimizer.step()
        said.append(loss.item().hex())
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return [*said, digest.hexdigest()[:16]]


def tried(prepare: Callable[[], Subject]) -> dict[str, Any]:
    """Result of one model: a row without its names."""
    warnings.simplefilter("ignore")
    try:
        subject = prepare()
        model = subject.make()
        size = sum(p.numel() for p in model.parameters())
        if size > MOST_PARAMETERS:
            return {"result": "not tried", "why": f"{size:,} parameters where it was made small"}
        expected = train(model, subject, "cpu")
        if train(subject.make(), subject, "cpu") != expected:
            return {"result": "not tried", "why": "two runs on the CPU differ"}
    except Exception as error:
        return {"result": "not tried", "why": f"on the CPU: {told(error)}"}
    row: dict[str, Any] = {"parameters": size}
    try:
        model = subject.make()
        torch.manual_seed(2)
        cpus_own = torch.get_rng_state()
        whole = train(model, subject, "managed")
        two_generators = not torch.equal(torch.get_rng_state(), cpus_own)
        peak = innkeeper.stats()["nodes"]["sim:0"]["peak"]
        del model
        budget = max(int(peak * SHARE), SMALLEST)
        innkeeper.manager().set_budget("sim:0", budget)
        innkeeper.manager().reset_stats()
        squeezed = train(subject.make(), subject, "managed")
        stats = innkeeper.stats()
    except Exception as error:
        return row | {"result": "fails", "why": told(error)}
    same = {"with room for all": whole == expected, f"at {SHARE:.0%}": squeezed == expected}
    row |= {"peak": peak, "evictions": stats["evictions"]}
    wrong = [what for what, holds in same.items() if not holds]
    if wrong and two_generators:
        wrong.append("it draws from the CPU's generator, too, and from two as on CUDA")
    return row | ({"result": "differs", "why": ", ".join(wrong)} if wrong else {"result": "same", "why": ""})


def told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def child(prepare: Callable[[], Subject], pipe: Any) -> None:
    """Runs one model in a process of its own, which never returns: a library's threads may live on."""
    pipe.send(tried(prepare))
    pipe.close()
    os._exit(0)


def row_of(candidate: Candidate) -> dict[str, Any]:
    """Row of one model, for any end of its process."""
    began = time.monotonic()
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(candidate.prepare, its))
    process.start()
    its.close()
    try:
        found = mine.recv() if mine.poll(LIMIT_S) else {"result": "fails", "why": f"not done in {LIMIT_S} s"}
    except EOFError:
        process.join()
        found = {"result": "fails", "why": f"its process ended with {process.exitcode}"}
    process.kill()
    process.join()
    seconds = round(time.monotonic() - began, 1)
    return {"name": candidate.name, "task": candidate.task, "seconds": seconds} | found


def main() -> int:
    """Runs all models, and writes a row for each."""
    parser = options(__doc__, ".*", "of the models' names")
    parser.add_argument("library", choices=LIBRARIES)
    args = parser.parse_args()
    make_importable()  # timm and diffusers import torchvision.
    candidates: Iterator[Candidate] = importlib.import_module(f"of_{args.library}").candidates()
    rows = []
    for candidate in candidates:
        if re.fullmatch(args.only, candidate.name) is None:
            continue
        rows.append(row_of(candidate))
        row = rows[-1]
        print(f"{row['result']:10}{row['name']:32}{row['why']}", flush=True)
    counts = Counter(row["result"] for row in rows)
    said = ", ".join(f"{count} {result}" for result, count in counts.most_common())
    print(f"{args.library}: {said}")
    if args.json is not None:
        write(args.json, [args.library], rows)
    unexpected = [
        row["name"] for row in rows if (row["result"] == "differs") != (row["name"] in KNOWN_TO_DIFFER)
    ]
    if unexpected:
        print(f"Not as known (KNOWN_TO_DIFFER in {Path(__file__).name}): {', '.join(unexpected)}")
    return int(bool(unexpected) or counts["fails"] > 0)


if __name__ == "__main__":
    sys.exit(main())
