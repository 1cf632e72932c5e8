"""The cost of the managed device if all fits, per small operator and training step, against plain PyTorch.

The sixty operators are those that training steps of a GPT, a Llama and a ResNet call most (AdamW and SGD
with foreach=False, clipping). Beside them stands the floor: the least cost of any separate device (floor.cc).

One thread, by the process's CPU time, so other programs do not count. Each row is measured in rounds. In a
round plain and managed run one after the other, the first of them changing from round to round, so that a
slow moment of the machine meets both. The ratio is the median of the rounds' ratios. The managed device is
the host node here; a second process measures a simulated GPU in the same way.

    python bench/overhead.py
    python bench/overhead.py --json overhead.json --rounds 50
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch.utils import cpp_extension

import torch
from torch import Tensor, nn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SIDES = {"8x8": 8, "4k": 64, "1M": 1024}
OPERATORS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "mm": torch.mm,
    "relu": lambda x, y: torch.relu(x),
    "sum": lambda x, y: x.sum(),
    "add_": lambda x, y: x.add_(y),
}
aten = torch.ops.aten


def hottest(device: str) -> dict[str, Callable[[], Any]]:
    """The sixty operators on small tensors of the device."""

    def full(value: float, *shape: int) -> Tensor:
        return torch.full(shape, value, device=device)

    x, y, z = full(1e-3, 8, 8), full(1.0, 8, 8), full(0.0, 8, 8)
    row, norms = full(1.0, 8), (full(0.0, 8, 1), full(1.0, 8, 1))
    mask, indices = x > 1, torch.zeros(8, dtype=torch.int64, device=device)
    batch, image, kernel = full(1e-3, 2, 8, 8), full(1e-3, 1, 4, 8, 8), full(1e-3, 4, 4, 3, 3)
    channels = [full(1.0, 4) for _ in range(4)]
    heads = full(1e-3, 1, 2, 8, 8)
    logits, loss = full(-1.0, 8, 8), full(1.0)
    pooled, places = aten.max_pool2d_with_indices(image, [2, 2], [2, 2])
    attended, spread = aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads)
    convolution = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    return {
        "view": lambda: x.view(64),
        "t": lambda: x.t(),
        "detach": lambda: x.detach(),
        "transpose": lambda: x.transpose(0, 1),
        "expand": lambda: row.expand(8, 8),
        "slice": lambda: x[2:6],
        "unsqueeze": lambda: x.unsqueeze(0),
        "add": lambda: x + y,
        "add_": lambda: x.add_(z),
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "mul, a number": lambda: x * 2.0,
        "mul_": lambda: x.mul_(y),
        "div": lambda: x / y,
        "div, a number": lambda: x / 2.0,
        "neg": lambda: -x,
        "sqrt": lambda: x.sqrt(),
        "rsqrt": lambda: y.rsqrt(),
        "pow": lambda: x.pow(2),
        "cos": lambda: x.cos(),
        "lerp_": lambda: x.lerp_(x, 0.1),
        "addcmul_": lambda: x.addcmul_(z, y, value=0.1),
        "addcdiv_": lambda: x.addcdiv_(z, y, value=0.1),
        "zero_": lambda: z.zero_(),
        "copy_": lambda: z.copy_(z),
        "clone": lambda: x.clone(),
        "zeros_like": lambda: torch.zeros_like(x),
        "empty_like": lambda: torch.empty_like(x),
        "item": lambda: loss.item(),
        "where": lambda: torch.where(mask, x, y),
        "tril": lambda: x.tril(),
        "cat": lambda: torch.cat((x, y)),
        "stack": lambda: torch.stack((x, y)),
        "slice_backward": lambda: aten.slice_backward(row, [8], 0, 0, 8, 1),
        "sum": lambda: x.sum(),
        "sum, a dimension": lambda: x.sum(0),
        "mean, a dimension": lambda: x.mean(-1, keepdim=True),
        "mm": lambda: torch.mm(x, y),
        "bmm": lambda: torch.bmm(batch, batch),
        "addmm": lambda: torch.addmm(row, x, y),
        "embedding": lambda: torch.embedding(x, indices),
        "embedding_backward": lambda: aten.embedding_dense_backward(x, indices, 8, -1, False),
        "layer_norm": lambda: torch.native_layer_norm(x, (8,), row, row, 1e-5),
        "layer_norm_backward": lambda: aten.native_layer_norm_backward(
            x, x, [8], *norms, row, row, [True, True, True]
        ),
        "softmax": lambda: torch._softmax(x, -1, False),
        "softmax_backward": lambda: aten._softmax_backward_data(x, y, -1, torch.float32),
        "log_softmax": lambda: torch._log_softmax(x, -1, False),
        "nll_loss": lambda: aten.nll_loss_forward(logits, indices, None, 1, -100),
        "gelu": lambda: aten.gelu(x),
        "gelu_backward": lambda: aten.gelu_backward(x, y),
        "silu": lambda: aten.silu(x),
        "relu": lambda: torch.relu(x),
        "threshold_backward": lambda: aten.threshold_backward(x, y, 0),
        "attention": lambda: aten._scaled_dot_product_flash_attention_for_cpu(heads, heads, heads),
        "attention_backward": lambda: aten._scaled_dot_product_flash_attention_for_cpu_backward(
            heads, heads, heads, heads, attended, spread, 0.0, False
        ),
        "convolution": lambda: aten.convolution(image, kernel, None, *convolution),
        "convolution_backward": lambda: aten.convolution_backward(
            image, image, kernel, None, *convolution, [True, True, False]
        ),
        "batch_norm": lambda: aten.native_batch_norm(image, *channels, True, 0.1, 1e-5),
        "max_pool2d": lambda: aten.max_pool2d_with_indices(image, [2, 2], [2, 2]),
        "max_pool2d_backward": lambda: aten.max_pool2d_with_indices_backward(
            pooled, image, [2, 2], [2, 2], [0, 0], [1, 1], False, places
        ),
    }


CAPTION = (
    "A time is the median over the rounds, and in brackets what nine of ten rounds stay below. "
    "To plain: managed time by plain time of the same round, the median over rounds; 1.00x costs nothing. "
    "The simulated GPU is measured in a process of its own, beside plain PyTorch there. "
    "Lists: time for one tensor of the list."
)
LISTS = (500, 4000)  # tensors of a list
ROUND_SECONDS = 0.004  # so long does plain PyTorch run in a round: many small calls, or one large one


@dataclass
class Row:
    """One case: seconds for one call, over the rounds."""

    name: str
    plain_median: float
    plain_p90: float
    managed_median: float
    managed_p90: float
    ratio: float
    above: float  # managed time less plain time of the same round, the median over rounds


def seconds(call: Callable[[], Any], times: int) -> float:
    """Mean seconds of one of ``times`` calls."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def compare(name: str, plain: Callable[[], Any], managed: Callable[[], Any], rounds: int) -> Row:
    """Measures both in ``rounds`` paired rounds, after a warm-up."""
    for call in (plain, managed):
        seconds(call, 3)
    times = max(1, int(ROUND_SECONDS / seconds(plain, 3)))
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for which in order:
            measured[which].append(seconds((plain, managed)[which], times))
    ratio = statistics.median(m / p for p, m in zip(*measured, strict=True))
    above = statistics.median(m - p for p, m in zip(*measured, strict=True))
    medians = [statistics.median(values) for values in measured]
    p90s = [statistics.quantiles(values, n=10)[-1] for values in measured]
    return Row(name, medians[0], p90s[0], medians[1], p90s[1], ratio, above)


def operator_rows(rounds: int) -> Iterator[Row]:
    """Each operator at each size, float32."""
    for size, side in SIDES.items():
        for name, operator in OPERATORS.items():
            calls = []
            for device in ("cpu", "managed"):
                x, y = (torch.full((side, side), 1e-3, device=device) for _ in range(2))
                calls.append(lambda x=x, y=y, operator=operator: operator(x, y))
            yield compare(f"{name} {size}", calls[0], calls[1], rounds)


def hot_rows(rounds: int) -> Iterator[Row]:
    """The sixty operators."""
    plain, managed = hottest("cpu"), hottest("managed")
    for name, call in plain.items():
        yield compare(name, call, managed[name], rounds)


def floor_row(rounds: int) -> Row:
    """An operator that does nothing, on a device that does nothing."""
    source = Path(__file__).with_name("floor.cc")
    stamp = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = source.parent.parent / "build" / "bench" / f"floor-{stamp}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        headers = [flag for path in cpp_extension.include_paths() for flag in ("-isystem", path)]
        paths = [f"-L{path}" for path in cpp_extension.library_paths()]
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
        command = [os.environ.get("CXX", "c++"), "-O2", "-std=c++20", "-shared", "-fPIC", abi, *headers]
        subprocess.run([*command, source, *paths, "-ltorch_cpu", "-lc10", "-o", made], check=True)
        made.rename(library)
    torch.ops.load_library(library)
    fresh = torch.ops.bench_floor.fresh.default
    x, y = (torch.zeros(8, 8, device=device) for device in ("cpu", "managed"))
    return compare("the floor", lambda: fresh(x), lambda: fresh(y), rounds)


def list_rows(rounds: int) -> Iterator[Row]:
    """An operator over a list, out of place, per tensor: the same for short lists and long ones."""
    for count in LISTS:
        calls = []
        for device in ("cpu", "managed"):
            tensors = [torch.full((8, 8), 1e-3, device=device) for _ in range(count)]
            calls.append(lambda tensors=tensors: torch._foreach_add(tensors, 1))
        row = compare(f"add, lists of {count}, a tensor", calls[0], calls[1], rounds)
        times = {key: value / count for key, value in asdict(row).items() if key not in ("name", "ratio")}
        yield replace(row, **times)


def training_row(width: int, rounds: int) -> Row:
    """One step of a GPT of 4 layers, batch 4 x 64, AdamW."""
    sys.path.insert(0, str(EXAMPLES))
    from train_text import GPT

    def stepper(device: str) -> Callable[[], None]:
        torch.manual_seed(0)
        model = GPT(characters=103, context=64, width=width, layers=4, heads=4, dropout=0.0).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
        text = torch.randint(103, (4, 65)).to(device)

        def step() -> None:
            optimizer.zero_grad()
            logits = model(text[:, :-1])
            nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
            optimizer.step()

        return step

    return compare(f"GPT step (4 x {width})", stepper("cpu"), stepper("managed"), rounds)


@dataclass
class Measured:
    """The measurements of one process."""

    cases: list[Row]
    hottest: list[Row]
    floor: Row | None  # not where all is measured shortly: it has to be compiled


def measure(rounds: int, quick: bool) -> Measured:
    """All rows, on the nodes that INNKEEPER_NODES names."""
    import innkeeper  # noqa: F401

    torch.set_num_threads(1)
    with torch.no_grad():
        cases = [*operator_rows(rounds), *list_rows(rounds)]
        hot = list(hot_rows(rounds))
        floor = None if quick else floor_row(rounds)
    # A step of the larger one takes as long as a round of many small operators.
    cases += [training_row(128, rounds), training_row(512, 2 if quick else max(rounds // 2, 2))]
    return Measured(cases, hot, floor)


def read(text: str) -> Measured:
    """The figures that a child wrote."""
    kept = json.loads(text)
    floor = kept["floor"] and Row(**kept["floor"])
    return Measured([Row(**row) for row in kept["cases"]], [Row(**row) for row in kept["hottest"]], floor)


def measure_elsewhere(nodes: str, rounds: int, quick: bool) -> Measured:
    """``measure`` in a process of its own, on these nodes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.json"
        command = [sys.executable, __file__, "--child", str(path), "--rounds", str(rounds)]
        command += ["--quick"] if quick else []
        subprocess.run(command, env=os.environ | {"INNKEEPER_NODES": nodes}, check=True)
        return read(path.read_text())


def time_text(value: float) -> str:
    """Nanoseconds, microseconds or milliseconds."""
    if value < 1e-5:
        return f"{value * 1e9:,.0f} ns"
    return f"{value * 1e6:,.1f} us" if value < 1e-2 else f"{value * 1e3:,.1f} ms"


def print_table(host: Sequence[Row], simulated: Sequence[Row]) -> None:
    """Median and 90th percentile of each, and the ratios."""
    table = Table("case", title="CPU time of a call, on one thread", caption=CAPTION, caption_justify="left")
    for title in ("plain PyTorch", "managed, host", "to plain", "managed, simulated GPU", "to plain"):
        table.add_column(title, justify="right")
    for row, sim in zip(host, simulated, strict=True):
        cells = [
            f"{time_text(median)} ({time_text(p90)})"
            for median, p90 in (
                (row.plain_median, row.plain_p90),
                (row.managed_median, row.managed_p90),
                (sim.managed_median, sim.managed_p90),
            )
        ]
        table.add_row(row.name, cells[0], cells[1], f"{row.ratio:.2f}x", cells[2], f"{sim.ratio:.2f}x")
    Console(width=120).print(table)


def print_hottest(host: Measured, simulated: Measured) -> None:
    """The cost of each of the sixty above plain PyTorch; the median and the worst of them."""
    table = Table("operator", title=f"The {len(host.hottest)} hottest operators, above plain PyTorch")
    for title in ("plain PyTorch", "host", "simulated GPU"):
        table.add_column(title, justify="right")
    for row, sim in zip(host.hottest, simulated.hottest, strict=True):
        table.add_row(row.name, *(time_text(value) for value in (row.plain_median, row.above, sim.above)))
    for name, choose in (("median", statistics.median), ("worst", max)):
        values = [choose(row.above for row in rows.hottest) for rows in (host, simulated)]
        table.add_row(name, "", *(time_text(value) for value in values), style="bold")
    if host.floor is not None:
        table.add_row(host.floor.name, time_text(host.floor.plain_median), time_text(host.floor.above), "")
    Console(width=120).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures both kinds of node, prints the table, and writes the figures if asked."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--quick", action="store_true", help="the fewest rounds, to see that it works")
    p.add_argument("--host", default="host:2GiB")
    p.add_argument("--simulated", default="sim:1x1GiB,host:2GiB")
    p.add_argument("--json", type=Path, help="write the figures to this file")
    p.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = p.parse_args(arguments)
    if args.quick:
        args.rounds = 2
    if args.child is not None:
        args.child.write_text(json.dumps(asdict(measure(args.rounds, args.quick))))
        return
    host = measure_elsewhere(args.host, args.rounds, args.quick)
    simulated = measure_elsewhere(args.simulated, args.rounds, args.quick)
    print_table(host.cases, simulated.cases)
    print_hottest(host, simulated)
    if args.json is not None:
        figures = {"host": asdict(host), "simulated": asdict(simulated)}
        args.json.write_text(
            json.dumps({"torch": torch.__version__, "rounds": args.rounds} | figures, indent=1)
        )


if __name__ == "__main__":
    main()
