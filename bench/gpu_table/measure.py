"""One cell, in this process: trains, and returns its figures."""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from gpu_table.cells import Cell
from gpu_table.program import Program
from torch import Tensor

Figures = dict[str, Any]
AT_ONCE = 16  # Parameters whose bytes are at the host at once, for their hash.


def memory_fraction(cap: int, total: int) -> float:
    """The fraction for PyTorch's allocator, whose ``int(fraction * total)`` bytes are never over the cap."""
    fraction = min(1.0, cap / total)
    while int(fraction * total) > cap:
        fraction = math.nextafter(fraction, 0.0)
    return fraction


def digest(parameters: Iterable[Tensor]) -> str:
    """The SHA-256 of the SHA-256 of each parameter's bytes, in order."""

    def of(x: Tensor) -> bytes:
        return hashlib.sha256(x.contiguous().view(-1).view(torch.uint8).numpy().data).digest()

    whole = hashlib.sha256()
    pending = [x.detach() for x in parameters]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, len(pending), AT_ONCE):
            group = pending[first : first + AT_ONCE]
            # FSDP2's parameters are of one process: its part is the whole.
            at_host = [(x.to_local() if hasattr(x, "to_local") else x).cpu() for x in group]
            for part in pool.map(of, at_host):
                whole.update(part)
    return whole.hexdigest()


def synchronize(device: str) -> None:
    """Waits until the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "managed":
        torch.accelerator.synchronize()


def peak_bytes(device: str) -> int:
    """The most that PyTorch's allocator, or a simulated GPU, had allocated since the first step."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return int(managed_stats()["nodes"]["sim:0"]["peak"]) if device == "managed" else 0


def managed_stats() -> Figures:
    """Innkeeper's counters."""
    import innkeeper

    return innkeeper.stats()


def pinned_bytes(device: str) -> int:
    """Page-locked host memory at its peak: of Innkeeper the host node's bytes, which all are."""
    if device == "managed":
        return int(managed_stats()["nodes"]["host"]["peak"])
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0))


def moved_bytes() -> int:
    """Bytes that Innkeeper has copied in either direction."""
    stats = managed_stats()
    return int(stats["bytes_fetched"] + stats["bytes_written_back"])


def prepare(cell: Cell, has_gpu: bool) -> Program:
    """The program with the way's changes, under the cap."""
    if not has_gpu:
        torch.set_num_threads(1)
    # Otherwise attention's backward pass adds up in another order in each run.
    torch.use_deterministic_algorithms(True)
    # It would run a kernel more for each tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    way, cap = cell.how, cell.cap_bytes
    if has_gpu and cap is not None and not way.is_managed:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(memory_fraction(cap, total))
    program = Program(cell.work, cell.cap_gib, "cuda" if has_gpu else "cpu")
    for change in way.before:
        change(program)
    if has_gpu:
        torch.cuda.init()  # Its statistics are 0 before.
    program.build()
    for change in way.after:
        change(program)
    program.optimizer = program.make_optimizer(program.model.parameters())
    return program


def train(cell: Cell, program: Program) -> Figures:
    """Runs the steps."""
    warm_up, measured = cell.steps
    device = program.device
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    if device == "managed":
        import innkeeper

        innkeeper.manager().reset_stats()
    digests: dict[str, str] = {}
    seconds: list[float] = []
    moved = 0
    for step in range(1, cell.last_steps[-1] + 1):
        if step == warm_up + 1 and device == "managed":
            moved = moved_bytes()
        synchronize(device)
        began = time.perf_counter()
        program.step()
        synchronize(device)
        if warm_up < step <= warm_up + measured:
            seconds.append(time.perf_counter() - began)
        if step == warm_up + measured:
            figures = memory_figures(
                device, (moved_bytes() - moved) // measured if device == "managed" else 0
            )
        if step in cell.last_steps:
            digests[str(step)] = digest(program.model.parameters())
    return {
        "step_s": statistics.median(seconds),
        "units_a_second": cell.work.units / statistics.median(seconds),
        "digests": digests,
        **figures,
    }


def memory_figures(device: str, moved: int) -> Figures:
    """The steps' memory and, for Innkeeper, their traffic on the link."""
    figures: Figures = {"peak_bytes": peak_bytes(device), "pinned_bytes": pinned_bytes(device)}
    if device == "managed":
        stats = managed_stats()
        figures |= {"moved_bytes": moved, "planned_periods": stats["planned_periods"]}
        figures["recomputed"] = stats["recomputed"]
    return figures


def run(cell: Cell) -> Figures:
    """The cell's figures; or, if its memory ran out, the bytes in use at that time.

    Environment: the runner sets ``INNKEEPER_NODES`` and the way's variables.
    """
    has_gpu = not cell.trial and torch.cuda.is_available()
    device = "managed" if cell.how.is_managed else "cuda" if has_gpu else "cpu"
    try:
        figures = train(cell, prepare(cell, has_gpu))
    except torch.OutOfMemoryError as error:
        return {"status": "out of memory", "peak_bytes": peak_bytes(device), "message": first_line(error)}
    return {"status": "measured", **figures}


def first_line(error: BaseException) -> str:
    """An error's first line."""
    return str(error).strip().split("\n")[0]
