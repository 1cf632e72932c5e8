"""The cost of training with less memory, by the recorded steps of ``bench/traces`` on simulated GPUs.

Each row of the table is a model on a GPU with a part of the memory of its peak. Times are those of a step, in
multiples of its kernels':

``planned``: as Innkeeper does it once it knows the period;
``recompute``: as programs run by default: plans may recompute the results of cheap operators;
``on demand``: without plans: each block moves when an operator needs it, concurrently with the kernels;
``pager``: the least recently used block leaves, and the program waits for each copy, as with unified memory;
``modules``, ``activations``, ``optimizer``: today's practice, each a rule about the tensors that are on the
host, on the same GPU and of the same record ("-": does not fit with any moves). Module by module with the
next one prefetched, as block swapping and cpu_offload; saved activations, as save_on_cpu, but concurrently
with the kernels and only the best number of them; and the optimizer's state, gradients and parameters, as
ZeRO-Offload and FSDP2's CPU offload, where the host makes the step if that is faster. The model, with the
benefit of the doubt, and its limits: ``src/replay/alternatives.h``;
``roofline``: the longest of the kernels and of the bytes that the farthest next use moves in each direction,
if all ran concurrently with the kernels. (It is no bound of time: bytes that do not fit at the end of a
forward pass must be out by then, and can only come back after it.)

Bytes are those that arrive in a step, in multiples of the bytes that the farthest next use moves with the
whole record known in advance (Belady's rule).

    python bench/replay.py
    python bench/replay.py --only 'gpt2|llama' --html build/replay.html --json build/replay.json
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from support.chosen import chosen, model_of, pattern
from support.replayed import replayed

TOP = Path(__file__).resolve().parent.parent
TRACES = Path(__file__).resolve().parent / "traces"
GPUS = {  # name: the simulator's GPU and link
    "H100, PCIe 5": ("H100", "PCIe 5 x16"),
    "A100, PCIe 4": ("A100", "PCIe 4 x16"),
    "RTX 4090, PCIe 4": ("RTX 4090", "PCIe 4 x16"),
    "GH200": ("GH200", "NVLink-C2C"),
}
SHARES = "0.9,0.8,0.7,0.6,0.5,0.4"
WAYS = {
    "planned": "run1",
    "recompute": "other3",
    "on_demand": "run0",
    "pager": "run2",
}  # keys, and the classes of their lines
OTHERS = {"modules": "other0", "activations": "other1", "optimizer": "other2"}  # Some do not fit.

Found = dict[str, Any]  # the output of `innkeeper replay --json` for one model on one GPU


def played(trace: Path, gpu: str, shares: str, steps: int, host_bandwidth: float | None = None) -> Found:
    """Plays one record."""
    name, link = GPUS[gpu]
    host = [] if host_bandwidth is None else ["--host-bandwidth", str(host_bandwidth)]
    words = ["--gpu", name, "--link", link, "--share", shares, "--steps", str(steps), *host]
    found = replayed(gzip.decompress(trace.read_bytes()), *words)
    return {"model": trace.name.removesuffix(".trace.gz"), "on": gpu, **found}


def times_of(found: Found, row: dict[str, Any]) -> dict[str, float]:
    """A row's times in multiples of the kernels', without those that do not fit."""
    ways = [way for way in (*WAYS, *OTHERS) if "seconds" in row[way]]
    seconds = {way: row[way]["seconds"] for way in ways} | {"roofline": row["roofline_seconds"]}
    return {way: value / found["kernel_seconds"] for way, value in seconds.items()}


def bytes_text(row: dict[str, Any]) -> str:
    """The planned fetches, in multiples of the fetches by Belady's rule."""
    planned, best = row["planned"]["bytes_in"], row["offline"]["bytes_in"]
    return f"{planned / best:.2f}" if best else "none" if not planned else f"{planned:,} B of none"


def cells(found: Found) -> Iterator[list[str]]:
    """The table's rows for one model on one GPU."""
    for row in found["rows"]:
        head = [found["model"], f"{row['share']:.0%}"]
        if "failed" in row:
            yield [*head, "does not fit", *("" for _ in HEADER[3:])]
            continue
        times = times_of(found, row)
        ways = (*WAYS, *OTHERS, "roofline")
        yield [*head, *(f"{times[way]:.2f}x" if way in times else "-" for way in ways), bytes_text(row)]


def host_line(all_found: list[Found]) -> str:
    """The host memory held, in multiples of the blocks' bytes there."""
    held = sorted(
        (row["host_bytes_held"] / row["host_bytes"], f"{found['model']} at {row['share']:.0%}")
        for found in all_found
        for row in found["rows"]
        if row.get("host_bytes")
    )
    under = sum(ratio <= 1.02 for ratio, _ in held)
    return (
        f"host memory held in slabs, of what blocks took: {held[len(held) // 2][0]:.3f}x in the middle, "
        f"at most 1.02x in {under} of {len(held)} cells, {held[-1][0]:.2f}x at most ({held[-1][1]})"
    )


def order_line(all_found: list[Found]) -> str:
    """The moves without plans, compared with those by the order of use alone (LRU)."""
    rows = [row for found in all_found for row in found["rows"] if row.get("by_use", {}).get("bytes_in")]
    parts = []
    for what, key in (("bytes in", "bytes_in"), ("time", "seconds")):
        ratios = sorted(row["on_demand"][key] / row["by_use"][key] for row in rows)
        middle = ratios[len(ratios) // 2]
        parts.append(f"{what} {ratios[0]:.3f}x to {ratios[-1]:.3f}x, {middle:.3f}x in the middle")
    return f"without plans, of the same by the order of use alone: {'; '.join(parts)} of {len(rows)} cells"


def recompute_line(all_found: list[Found]) -> str:
    """The time of a step whose blocks may be recomputed, as a part of the planned time without."""
    rows = [row for found in all_found for row in found["rows"] if "failed" not in row]
    ratios = sorted(row["recompute"]["seconds"] / row["planned"]["seconds"] for row in rows)
    faster = sum(ratio < 1 / ALIKE for ratio in ratios)
    slower = sum(ratio > ALIKE for ratio in ratios)
    return (
        f"recompute: faster than planned in {faster} of {len(rows)} cells, slower in {slower}; of its time "
        f"{ratios[0]:.2f}x to {ratios[-1]:.2f}x, {ratios[len(ratios) // 2]:.2f}x in the middle"
    )


def behind(found: Found, row: dict[str, Any], way: str, of: str) -> str:
    """A cell in which another way is faster than Innkeeper's, and by how much."""
    ratio = row[of]["seconds"] / row[way]["seconds"]
    step = ", the host's step" if row[way].get("by_host") else ""
    return f"{found['model']} at {row['share']:.0%} on {found['on']} ({ratio:.2f}x{step})"


def others_lines(all_found: list[Found]) -> Iterator[str]:
    """Innkeeper compared with each of today's ways, and the rows in which it is slower."""
    rows = [(found, row) for found in all_found for row in found["rows"] if "failed" not in row]
    for way in OTHERS:
        fit = [(found, row) for found, row in rows if "seconds" in row[way]]
        yield f"{way}: does not fit in {len(rows) - len(fit)} of {len(rows)} cells"
        for ours in ("planned", "recompute"):
            ratios = [row[ours]["seconds"] / row[way]["seconds"] for _, row in fit]
            pairs = list(zip(fit, ratios, strict=True))
            worse = [behind(*cell, way, ours) for cell, ratio in pairs if ratio > ALIKE]
            ahead = sum(ratio < 1 / ALIKE for ratio in ratios)
            alike = len(fit) - ahead - len(worse)
            named = f": {'; '.join(worse)}" if worse else ""
            yield f"  {ours} is ahead in {ahead}, alike in {alike}, behind in {len(worse)}{named}"


HEADER = (
    "model", "room", "planned", "recompute", "on demand", "pager", "modules", "activations", "optimizer",
    "roofline",
    "bytes in, of the best",
)  # fmt: skip
WIDTH = 120  # columns of the table
ALIKE = 1.005  # times of a step that differ by less


def page(all_found: list[Found]) -> str:
    """The whole page: plots, then the tables."""
    sys.path.insert(0, str(TOP / "examples"))
    from demo_plots import Plot

    style = (TOP / "examples" / "demo_page.css").read_text()
    parts = []
    for gpu in dict.fromkeys(found["on"] for found in all_found):
        figures, rows = [], []
        for found in all_found:
            if found["on"] != gpu:
                continue
            rows += [f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in line)}</tr>" for line in cells(found)]
            points = [
                (100 * row["share"], times_of(found, row))
                for row in reversed(found["rows"])
                if "failed" not in row
            ]
            if len(points) < 2:
                continue
            plot = Plot(points[0][0], points[-1][0], 1.1 * max(v for _, t in points for v in t.values()), "x")
            for way, kind in (WAYS | OTHERS).items():
                line = [(share, times[way]) for share, times in points if way in times]
                if len(line) > 1:
                    plot.line(line, kind)
            plot.line([(share, times["roofline"]) for share, times in points], "host")
            picture = plot.svg(
                f"{found['model']} on {gpu}",
                "a step's time in multiples of its kernels', by the room in % of the peak",
                "% of the peak",
            )
            figures.append(
                f"<figure><figcaption>{escape(found['model'])}</figcaption>"
                f'<div class="frame low">{picture}</div></figure>'
            )
        head = "".join(f"<th>{escape(title)}</th>" for title in HEADER)
        parts.append(
            f'<h2>{escape(gpu)}</h2><div class="tiles">{"".join(figures)}</div>'
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )
    about = escape((__doc__ or "").split("\n\n    python")[0]).replace("\n\n", "</p><p>").replace("``", "")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Training with less room</title><style>{style}"
        "td, th { padding: .2rem .6rem; text-align: right; } td:first-child { text-align: left; }"
        ".line.host { stroke-dasharray: 6 4; stroke-width: 2; }"
        ".other0 { --c: #2f9e44; } .other1 { --c: #e8890c; } .other2 { --c: #8b5cf6; } "
        ".other3 { --c: #0891b2; }"
        "[class^='line other'] { stroke-width: 2; }</style></head><body><main>"
        f"<h1>Training with less room</h1><p>{about}</p>"
        "<p>Lines: planned in blue, with recompute in cyan, on demand in grey, the pager in red, the roof"
        "line dashed; modules in green, activations in orange, the optimizer in violet, where these fit.</p>"
        f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in others_lines(all_found))}</ul>"
        f"{''.join(parts)}</main></body></html>\n"
    )


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=pattern, default="", metavar="PATTERN", help="of the models' names")
    parser.add_argument("--gpu", choices=GPUS, action="append", help="these alone")
    parser.add_argument("--steps", type=int, default=12, help="more than were recorded")
    parser.add_argument("--host-bandwidth", type=float, metavar="GB/S", help="where the host makes a step")
    parser.add_argument("--html", type=Path, default=TOP / "build" / "replay.html", help="the page")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="two small models on one GPU")
    args = parser.parse_args()
    if args.quick:
        args.only, args.gpu = pattern("lstm|unet"), ["H100, PCIe 5"]
    traces = chosen(sorted(TRACES.glob("*.trace.gz")), args.only, model_of)
    all_found = []
    console = Console(soft_wrap=True, width=WIDTH)
    for gpu in args.gpu or GPUS:
        table = Table(*HEADER, title=f"{gpu}: a step's time, of its kernels'")
        for trace in traces:
            found = played(trace, gpu, SHARES, args.steps, args.host_bandwidth)
            all_found.append(found)
            for line in cells(found):
                table.add_row(*line)
            table.add_section()
        console.print(table)
    console.print(host_line(all_found))
    console.print(order_line(all_found))
    console.print(recompute_line(all_found))
    for line in others_lines(all_found):
        console.print(line)
    args.html.parent.mkdir(parents=True, exist_ok=True)
    args.html.write_text(page(all_found))
    console.print(f"the page with plots: {args.html}")
    if args.json is not None:
        args.json.write_text(json.dumps(all_found, indent=1))


if __name__ == "__main__":
    main()
