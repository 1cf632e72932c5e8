"""The cells of the table: a workload, a way, and a cap; which come first; which are left for another hour."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_table import ways
from gpu_table.ways import MANAGED, PLAIN, RIVALS, WAYS, Way
from gpu_table.workloads import GIB, WORKLOADS, Workload

START_S = 7.0  # Estimate: import PyTorch, start CUDA, make the model, read the parameters for their hash.
HASH_BYTES_S = 4e9  # Estimate: bytes of parameters that are copied to the host and hashed in a second.
TRIAL_S = 6.0  # Estimate: a cell at the smallest shape.
TRIAL_LIMIT_S = 250.0  # Its limit, for a machine that others keep busy.


@dataclass(frozen=True)
class Cell:
    """One process of the benchmark."""

    workload: str
    way: str
    cap_gib: float | None  # None: all of the GPU.
    trial: bool = False  # Whether it runs at the smallest shape, to try its code without a GPU.

    @property
    def key(self) -> str:
        """Its name in the file of results."""
        return f"{self.workload} / {self.cap} / {self.way}"

    @property
    def cap(self) -> str:
        """The cap with its unit."""
        if self.cap_gib is None:
            return "uncapped"
        return f"{self.cap_gib:g} GiB" if self.cap_gib >= 1 else f"{self.cap_gib * 1024:g} MiB"

    @property
    def work(self) -> Workload:
        """Its workload."""
        return WORKLOADS[self.workload].small() if self.trial else WORKLOADS[self.workload]

    @property
    def how(self) -> Way:
        """Its way."""
        return WAYS[self.way]

    @property
    def cap_bytes(self) -> int | None:
        """The cap, rounded down to 64 bytes, the grain of Innkeeper's budgets."""
        return None if self.cap_gib is None else int(self.cap_gib * GIB) // 64 * 64

    @property
    def is_reference(self) -> bool:
        """Whether it gives its workload's full speed and bits."""
        return self.how is PLAIN and self.cap_gib is None

    @property
    def steps(self) -> tuple[int, int]:
        """Steps before those that are measured, and those that are."""
        work = self.work
        return (work.warm_up_planned if self.how.plans else work.warm_up), work.measured

    @property
    def last_steps(self) -> list[int]:
        """Steps after which the parameters are hashed: its last one, and of a reference every way's."""
        work = self.work
        if self.is_reference:
            return sorted({work.warm_up + work.measured, work.warm_up_planned + work.measured})
        return [sum(self.steps)]

    @property
    def estimate_s(self) -> float:
        """Seconds that it may take on an H200, or here to try its code."""
        work = self.work
        if self.trial:
            return TRIAL_S
        steps = self.last_steps[-1]
        states = 2 * parameters(work) / HASH_BYTES_S * len(self.last_steps)
        return START_S + self.how.start_s + states + steps * work.step_s * self.how.slowdown

    @property
    def limit_s(self) -> float:
        """Seconds after which it is stopped."""
        return TRIAL_LIMIT_S if self.trial else max(60.0, round(3 * self.estimate_s))


def parameters(work: Workload) -> int:
    """About how many parameters a workload's model has."""
    shape = work.shape
    attention = shape.width * shape.head * (2 * shape.heads + 2 * shape.groups) or shape.width**2
    feed = shape.width * shape.inner * (2 if shape.kind == "gpt" else 3)
    words = shape.words * shape.width * (1 if shape.tied else 2)
    return shape.layers * (attention + feed) + words


def of(workload: str, cap: float | None, *chosen: Way) -> list[Cell]:
    """Cells of one workload and cap."""
    return [Cell(workload, way.name, cap) for way in chosen]


RECOMPUTE, PLANNED, ON_DEMAND = MANAGED
DEFAULT = (
    *of("T1", None, PLAIN),
    *of("T1", 12, *MANAGED, ways.FSDP2, ways.CPU_OFFLOAD, ways.SAVE_ON_CPU),
    *of("T5", None, PLAIN),
    *of("T5", 16, RECOMPUTE, PLANNED, ways.COMPILED, ways.CHECKPOINTING, ways.MICRO_BATCHES),
    *of("T3", None, PLAIN),
    *of("T3", 32, RECOMPUTE),
    *(cell for name in ("fits GPT-2", "fits 8x256") for cell in of(name, None, PLAIN, RECOMPUTE)),
    *of("T1", 16, RECOMPUTE, PLANNED),
    *of("T1", 20, RECOMPUTE),
    *of("T5", 16, ways.SELECTIVE),
)


def all_cells() -> list[Cell]:
    """Every cell, those of the default selection first, both by importance."""
    cells = list(DEFAULT)
    for name, work in WORKLOADS.items():
        cells += of(name, None, PLAIN)
        for cap in reversed(work.caps):
            cells += of(name, cap, *MANAGED, *RIVALS[name])
    return list(dict.fromkeys(cells))


def trial_cells() -> list[Cell]:
    """The cells without a GPU: each workload on a simulated GPU, and each rival's code once on the CPU."""
    cells: dict[tuple[str, str], Cell] = {}
    for name in WORKLOADS:
        small = WORKLOADS[name].small()
        cap = small.caps[0] if small.caps else None
        cells[name, PLAIN.name] = Cell(name, PLAIN.name, None, trial=True)
        for way in MANAGED if small.caps else (RECOMPUTE,):
            cells[name, way.name] = Cell(name, way.name, cap, trial=True)
        for way in RIVALS.get(name, ()):
            if way is not PLAIN and all(tried != way.name for _, tried in cells):
                cells[name, way.name] = Cell(name, way.name, cap, trial=True)
    return list(cells.values())
