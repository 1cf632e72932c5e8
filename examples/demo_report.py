"""The demo's table and its page of plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
from rich.console import Console
from rich.table import Table

Run = dict[str, Any]
_COLOURS = ("#7f7f7f", "#1f77b4", "#d62728")
_COLUMNS = (
    "run",
    "last loss",
    "weights",
    "peak on GPUs",
    "budget",
    "fetched",
    "written back",
    "between GPUs",
    "evictions",
    "time",
    "simulated",
    "slowdown",
)


def mib(count: float) -> str:
    """``"123.4 MiB"``."""
    return f"{count / (1 << 20):,.1f} MiB"


def rows(runs: Sequence[Run], peak_of: Callable[[Run], int]) -> list[list[str]]:
    """The table's cells. A run without a manager has no bytes to tell."""
    table = []
    for run in runs:
        cells = [run["name"], f"{run['losses'][-1]:.4f}", run["sha256"][:12]]
        stats = run.get("stats")
        if stats is None:
            cells += ["-"] * 6
        else:
            gpus = [node for name, node in stats["nodes"].items() if name not in ("host", "disk")]
            cells += [mib(peak_of(run)), mib(sum(node["budget"] for node in gpus))]
            cells += [mib(stats[key]) for key in ("bytes_fetched", "bytes_written_back", "bytes_between")]
            cells += [f"{stats['evictions']:,}"]
        simulated = stats["simulated_seconds"] if stats else 0
        cells += [f"{run['seconds']:.1f} s", f"{simulated:.2f} s" if simulated else "-"]
        cells += [f"{run['seconds'] / runs[0]['seconds']:.2f}x"]
        table.append(cells)
    return table


def print_table(runs: Sequence[Run], peak_of: Callable[[Run], int]) -> None:
    """One column a run, so that it fits a terminal."""
    table = Table(show_header=True, header_style="bold")
    by_run = rows(runs, peak_of)
    table.add_column(_COLUMNS[0])
    for cells in by_run:
        table.add_column(cells[0], justify="right")
    for number, title in enumerate(_COLUMNS[1:], start=1):
        table.add_row(title, *(cells[number] for cells in by_run))
    print()
    Console().print(table)


def loss_figure(runs: Sequence[Run]) -> go.Figure:
    """Loss by step; equal curves lie on top of each other, so the later ones are thinner and dashed."""
    figure = go.Figure()
    for run, colour, width, dash in zip(runs, _COLOURS, (8, 4, 2), ("solid", "solid", "dot"), strict=True):
        steps = list(range(1, len(run["losses"]) + 1))
        line = {"color": colour, "width": width, "dash": dash}
        figure.add_scatter(x=steps, y=run["losses"], name=run["name"], mode="lines", line=line)
    figure.update_layout(title="Loss", xaxis_title="step", yaxis_title="cross entropy per character (nats)")
    return figure


def steps_of(run: Run) -> list[float]:
    """The samples' operators as steps of training."""
    ordinals = run["samples"]["op"]
    return [op / max(1, ordinals[-1]) * len(run["losses"]) for op in ordinals]


def memory_figure(run: Run) -> go.Figure:
    """Bytes on each node over time, and the accelerators' budgets."""
    figure = go.Figure()
    steps = steps_of(run)
    for number, name in enumerate(run["samples"]["nodes"]):
        used = [row[number] / (1 << 20) for row in run["samples"]["resident"]]
        figure.add_scatter(x=steps, y=used, name=name, mode="lines", line={"width": 1})
        if name not in ("host", "disk"):
            budget = run["stats"]["nodes"][name]["budget"] / (1 << 20)
            figure.add_hline(y=budget, line_dash="dash", annotation_text=f"budget of {name}")
    figure.update_layout(
        title=f"Bytes on each node: {run['name']}", xaxis_title="step", yaxis_title="MiB", showlegend=True
    )
    return figure


def transfer_figure(runs: Sequence[Run]) -> go.Figure:
    """Bytes moved so far, over time."""
    figure = go.Figure()
    for run, colour in zip(runs, _COLOURS[1:], strict=True):
        for key, dash in (("bytes_fetched", "solid"), ("bytes_written_back", "dot")):
            total = [count / (1 << 20) for count in run["samples"][key]]
            name = f"{run['name']}: {key.removeprefix('bytes_').replace('_', ' ')}"
            figure.add_scatter(x=steps_of(run), y=total, name=name, line={"color": colour, "dash": dash})
    figure.update_layout(title="Transfers so far", xaxis_title="step", yaxis_title="MiB")
    return figure


def page(runs: Sequence[Run], peak_of: Callable[[Run], int]) -> str:
    """One HTML page with everything in it, plotly's script too: it needs no network."""
    figures = [loss_figure(runs), *(memory_figure(run) for run in runs[1:]), transfer_figure(runs[1:])]
    plots = [
        figure.update_layout(template="plotly_white", height=420).to_html(
            full_html=False, include_plotlyjs=number == 0
        )
        for number, figure in enumerate(figures)
    ]
    head = "".join(f"<th>{escape(title)}</th>" for title in _COLUMNS)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows(runs, peak_of)
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Innkeeper: one model, three memories</title>
<style>
body {{ font-family: sans-serif; margin: 2rem auto; max-width: 76rem; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #ccc; padding: .3rem .6rem; text-align: right; }}
</style></head><body>
<h1>One model, three memories</h1>
<p>The same script from the same seed. Equal weights have equal hashes.</p>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
{"".join(plots)}
</body></html>
"""
