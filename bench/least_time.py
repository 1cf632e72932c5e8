"""The least time of a training step with less memory, for any order of moves, and the time that it takes.

A step of ``bench/traces`` repeats on a simulated GPU. Between two uses a block may be on the host. If it was
written, its bytes must be copied out before, and they must be back before the next use. A linear program
finds the least time of a step. It cuts the step into intervals; kernels run in order, a link carries a limit
of bytes per interval each way, and parts of blocks may move. Times are in multiples of the kernels':

``no less``: a bound for every plan. A copy may use the whole of each interval that the block's gap touches,
bytes that leave or return in an interval need no memory in all of it, and small blocks pay no latency.
``in parts``: the time of the best plan that moves parts of blocks, and so no less than the least time. Only
intervals that lie wholly in the gap may be used, bytes need memory in the intervals in which they leave or
return, and small blocks stay.
``planned``: the time that ``innkeeper replay`` measures for Innkeeper's plans, which move whole blocks.
``roofline``: the longest of the kernels and of the bytes in each direction, in the same unit.

Written bytes are written back before their memory is reused, even if no operator uses them again. A part of a
block pays its part of the link's latency. Not in the model: memory that kernels take for themselves. More
intervals bring the two bounds together, and take longer.

    python bench/least_time.py
    python bench/least_time.py --only gpt2 --share 0.5 --intervals 120
"""

from __future__ import annotations

import argparse
import gzip
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import coo_array
from support.chosen import chosen, model_of, pattern

from replay import GPUS, TRACES, played, times_of

SMALL = 64 << 10
GB = 1e9  # the program's unit of bytes: a solver's numbers should be of one order


class Machine(NamedTuple):
    """A GPU and its link to the host, in the units of ``innkeeper replay --json`` (seconds, per second)."""

    flops: dict[str, float]  # operations per second by precision
    bytes: float
    launch_seconds: float
    link_bytes: float
    link_seconds: float


class Gap(NamedTuple):
    """Operators between two uses of a block. Those of a period count on through the one after it."""

    begin: int
    end: int
    returns: bool


@dataclass
class Version:
    """A block's bytes from one write on until the next, and the operator that writes them, if one does."""

    size: int
    written: int | None
    gaps: list[Gap]


@dataclass
class Period:
    """A step that repeats itself: seconds and bytes alive by operator, and gaps in which blocks may leave."""

    seconds: np.ndarray
    alive: np.ndarray
    versions: list[Version]


@dataclass
class Step:
    """Seconds and accesses (block, size, is written) by operator; blocks freed, and after how many."""

    seconds: list[float]
    accesses: list[list[tuple[int, int, bool]]]
    freed: list[tuple[int, int]]


def steps_of(record: Path, machine: Machine) -> list[Step]:
    """The steps of a record, and the part before the first one. The format: ``src/trace/recorder.h``."""
    steps = [Step([], [], [])]
    with gzip.open(record, "rt") as lines:
        for line in lines:
            kind, *rest = line.split()
            now = steps[-1]
            if kind == "F":
                now.freed.append((int(rest[0]), len(now.seconds)))
            elif kind == "M" and rest == ["step"]:
                steps.append(Step([], [], []))
            elif kind == "O":
                known = len(rest) > 1 and rest[1].startswith("=")
                accesses = [
                    (int(block), int(size[:-1]), size[-1] != "r")
                    for block, size in (each.split(":") for each in rest[2 if known else 1 :])
                ]
                if known:
                    flops, touched, kernels, *precision = rest[1][1:].split(",")
                else:
                    flops, touched, kernels, precision = (
                        "0",
                        str(sum(size for _, size, _ in accesses)),
                        "1",
                        [],
                    )
                rate = machine.flops[precision[0] if precision else "bf16"]
                now.seconds.append(
                    int(kernels) * machine.launch_seconds
                    + max(float(flops) / rate, float(touched) / machine.bytes)
                )
                now.accesses.append(accesses)
    return steps[:-1]  # no step follows the last mark


def period_of(steps: list[Step]) -> Period:
    """The last step as a period. A block made in a step may live on in the next: the search begins there."""
    if len(steps) < 3:
        raise SystemExit(f"a record of {len(steps)} steps; it takes three, of which the last two are alike")
    *earlier, first, second = steps
    length = len(second.seconds)
    if len(first.seconds) != length:
        raise SystemExit(f"the last two steps differ: {len(first.seconds)} and {length} operators")
    old = {block for step in earlier for accesses in step.accesses for block, _, _ in accesses}
    uses: dict[int, dict[int, bool]] = defaultdict(dict)
    sizes: Counter[int] = Counter()
    dies = {block: at + shift for step, shift in ((first, 0), (second, length)) for block, at in step.freed}
    for at, accesses in enumerate(first.accesses + second.accesses):
        for block, size, written in accesses:
            uses[block][at] = uses[block].get(at, False) or written
            sizes[block] = max(sizes[block], -(-size // 512) * 512)  # Allocators round up.
    found = Period(np.array(second.seconds), np.zeros(length, np.int64), [])
    for block, when in uses.items():
        if block in old and block not in dies:  # a lasting block: its period is the second one
            mine = sorted((at - length, written) for at, written in when.items() if at >= length)
            if mine:
                found.alive += sizes[block]
                found.versions += lasting(sizes[block], mine, length)
        elif block not in old and min(when) < length:
            died = dies.get(block, 2 * length)
            for at in range(min(when), died):
                found.alive[at % length] += sizes[block]
            found.versions += passing(sizes[block], sorted(when.items()), died)
    return found


def lasting(size: int, uses: list[tuple[int, bool]], length: int) -> Iterator[Version]:
    """Versions of a block that outlives the period: one for each write, or one if it is never written."""
    count = len(uses)
    writes = [i for i, (_, written) in enumerate(uses) if written]
    begins = writes or [0]
    for i, begin in enumerate(begins):
        end = begins[i + 1] if i + 1 < len(begins) else begins[0] + count
        after = [
            (uses[k % count][0] + k // count * length, uses[(k + 1) % count][0] + (k + 1) // count * length)
            for k in range(begin, end)
        ]
        gaps = [Gap(use + 1, again, True) for use, again in after if use + 1 < again]
        yield Version(size, uses[begin][0] if writes else None, gaps)


def passing(size: int, uses: list[tuple[int, bool]], died: int) -> Iterator[Version]:
    """Versions of a block that the period makes."""
    versions: list[Version] = []
    for i, (at, written) in enumerate(uses):
        if written or not versions:
            versions.append(Version(size, at, []))
        returns = i + 1 < len(uses)
        end = uses[i + 1][0] if returns else died
        if at + 1 < end:
            versions[-1].gaps.append(Gap(at + 1, end, returns))
    yield from versions


class Program:
    """The linear program of a period with ``space`` bytes of memory, cut into intervals of about equal time.

    Its variables are the seconds of each interval and, for each block that may leave, by interval: bytes that
    leave and return, the sums of these, and the bytes on the host.
    """

    def __init__(self, found: Period, space: int, machine: Machine, intervals: int, whole: bool) -> None:
        length = len(found.seconds)
        progress = np.cumsum(found.seconds / found.seconds.sum() + 0.5 / length)
        self.of = np.minimum((progress / progress[-1] * intervals).astype(int), intervals - 1)
        self.of = np.unique(self.of, return_inverse=True)[1]  # an operator may be longer than an interval
        self.length, self.count, self.whole = length, int(self.of[-1]) + 1, whole
        self.kernels = np.bincount(self.of, weights=found.seconds)
        self.short = np.full(self.count, -space, np.int64)
        np.maximum.at(self.short, self.of, found.alive - space)
        self.low, self.high = list(self.kernels), [np.inf] * self.count
        self.rows: list[dict[int, float]] = []
        self.most: list[float] = []
        self.links: dict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
        self.elsewhere: dict[int, list[int]] = defaultdict(list)
        # Sum of bytes of equal versions.
        alike: Counter[tuple[float, int | None, tuple[Gap, ...]]] = Counter()
        for version in found.versions:
            if whole and version.size <= SMALL:
                continue
            gaps = [gap for gap in map(self.cut, version.gaps) if gap.begin < gap.end]
            helping = [gap for gap in gaps if any(self.is_short(at) for at in range(gap.begin, gap.end))]
            if not helping:
                continue
            shift = helping[0].begin // self.count * self.count
            moved = tuple(Gap(gap.begin - shift, gap.end - shift, gap.returns) for gap in helping)
            written = None
            if version.written is not None:
                written = self.interval(version.written) + whole - shift
            paid = (
                1.0 if version.size <= SMALL else 1 + machine.link_seconds * machine.link_bytes / version.size
            )
            alike[paid, written, moved] += version.size
        for (paid, written, moved), size in alike.items():
            self.add(written, moved, size / GB, paid)
        for at in range(self.count):
            for way in ("out", "in"):
                self.limit(dict(self.links[way, at]) | {at: -machine.link_bytes / GB}, 0)
            if self.is_short(at):
                self.limit(dict.fromkeys(self.elsewhere[at], -1.0), -self.short[at] / GB)

    def is_short(self, at: int) -> bool:
        """Whether the bytes alive in an interval exceed the memory."""
        return bool(self.short[at % self.count] > 0)

    def interval(self, operator: int) -> int:
        """That of an operator. Those of a period count on through the one after it, as operators do."""
        return operator // self.length * self.count + int(self.of[operator % self.length])

    def cut(self, gap: Gap) -> Gap:
        """A gap in intervals."""
        begin, last = self.interval(gap.begin), self.interval(gap.end - 1)
        if self.whole:
            begin += self.interval(gap.begin - 1) == begin
            last -= self.interval(gap.end) == last
        return Gap(begin, last + 1, gap.returns)

    def variable(self, most: float = np.inf) -> int:
        """One from 0 on."""
        self.low.append(0)
        self.high.append(most)
        return len(self.low) - 1

    def limit(self, row: dict[int, float], most: float) -> None:
        """Adds a constraint: the sum of these variables, times their factors, is at most ``most``."""
        self.rows.append(row)
        self.most.append(most)

    def flow(self, way: str, at: int, before: int | None, size: float, paid: float) -> int:
        """The bytes moved one way by an interval's end; ``before``: by the end of the previous one."""
        now, moved = self.variable(size), self.variable()
        self.links[way, at % self.count].append((moved, paid))
        self.limit({now: 1.0, moved: -1.0} | ({} if before is None else {before: -1.0}), 0)
        return now

    def add(self, written: int | None, gaps: tuple[Gap, ...], size: float, paid: float) -> None:
        """Adds a version of a block, or some equal ones, that may leave; copied out from ``written`` on."""
        out: dict[int, int] = {}
        last: int | None = None
        for at in range(written, gaps[-1].end) if written is not None else ():
            last = out[at] = self.flow("out", at, last, size, paid)
        for gap in gaps:
            left, back = self.variable(size), None
            for at in range(gap.begin, gap.end):
                before, back = back, self.flow("in", at, back, size, paid) if gap.returns else None
                if not self.is_short(at):
                    continue
                away = self.variable(size)
                self.elsewhere[at % self.count].append(away)
                returned = back if self.whole else before
                self.limit({away: 1.0, left: -1.0} | ({} if returned is None else {returned: 1.0}), 0)
                if written is not None:
                    is_out = out.get(at - 1 if self.whole else at)
                    self.limit({away: 1.0} | ({} if is_out is None else {is_out: -1.0}), 0)
            if back is not None:
                self.limit({left: 1.0, back: -1.0}, 0)

    def least(self) -> float | None:
        """Seconds of a period, where there is a way at all."""
        entries = [(i, column, value) for i, row in enumerate(self.rows) for column, value in row.items()]
        rows, columns, values = zip(*entries, strict=True)
        matrix = coo_array((values, (rows, columns)), shape=(len(self.rows), len(self.low))).tocsr()
        cost = np.zeros(len(self.low))
        cost[: self.count] = 1
        bounds = np.column_stack((self.low, self.high))
        found = linprog(cost, A_ub=matrix, b_ub=self.most, bounds=bounds, method="highs-ipm")
        return found.fun if found.status == 0 else None


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=pattern, default="", metavar="PATTERN", help="of the models' names")
    parser.add_argument("--gpu", choices=GPUS, default="H100, PCIe 5")
    parser.add_argument("--share", default="0.7,0.5", help="parts of the peak")
    parser.add_argument("--intervals", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="one small model, cut coarsely")
    args = parser.parse_args()
    if args.quick:
        args.only, args.share, args.intervals = pattern("lstm"), "0.7", 20
    table = Table(title=f"{args.gpu}: the time of a step, of its kernels'")
    for column in ("model", "room", "no less", "in parts", "planned", "roofline"):
        table.add_column(column)
    for trace in chosen(sorted(TRACES.glob("*.trace.gz")), args.only, model_of):
        found = played(trace, args.gpu, args.share, 12)
        machine = Machine(**found["figures"])
        steps = period_of(steps_of(trace, machine))
        kernels = float(steps.seconds.sum())
        if abs(kernels - found["kernel_seconds"]) > 1e-6 * kernels:
            raise SystemExit(f"{trace.name}: kernels of {kernels} s, not {found['kernel_seconds']}")
        for row in found["rows"]:
            if "failed" in row:
                continue
            bounds = [
                Program(steps, row["budget"], machine, args.intervals, whole).least()
                for whole in (False, True)
            ]
            times = times_of(found, row)
            table.add_row(
                found["model"],
                f"{row['share']:.0%}",
                *("none found" if bound is None else f"{bound / kernels:.2f}x" for bound in bounds),
                *(f"{times[way]:.2f}x" for way in ("planned", "roofline")),
            )
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
