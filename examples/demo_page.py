"""The demo's page: the three runs' results, as one HTML file that needs no network and no script."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from importlib.metadata import version
from pathlib import Path

import demo_figures
from demo_report import (
    HASH,
    SHOWN,
    TIMES,
    Row,
    Run,
    budget_of,
    bytes_text,
    bytes_unit,
    clock_of,
    is_simulated,
    moved_texts,
    of_gpus,
    peak_of,
    rounded,
    rows,
    seconds_unit,
    short,
    times_of,
    typical,
)

STYLE = Path(__file__).with_suffix(".css")


def page(runs: Sequence[Run], command: Sequence[str]) -> str:
    """The whole page.

    Args:
        runs: plain PyTorch, managed with memory for all, managed with less.
        command: the command line that made them.

    """
    plain, ample, tight = runs
    title = escape(headline(runs))
    gpu = "a simulated GPU" if is_simulated(tight) else "a GPU"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Innkeeper: {title}</title>
<style>
{STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
<p class="kicker">Innkeeper: one PyTorch device that is all the memory a program may use</p>
<h1>{title}</h1>
<p>One GPT of {plain["parameters"]:,} parameters, trained three times for {len(plain["losses"])} steps from
one seed: by plain PyTorch; on the managed device, {gpu} with room for all; and on {gpu} with
{share(tight, ample)} of the memory that the second run needed. The training script is the same and knows
nothing of memory.</p>
</header>
<main>
<section class="tiles" aria-label="At one glance">
{same_bits(runs)}
{less_memory(ample, tight)}
{price(plain, ample, tight)}
</section>
<section>
<h2>Where the bytes were</h2>
<div class="pair">
{demo_figures.memory(ample, ample)}
{demo_figures.memory(tight, ample)}
</div>
</section>
<section>
<h2>Two steps from close by</h2>
<div class="pair">
{demo_figures.memory(tight, tight, last=2)}
{demo_figures.moved_within(tight, last=2)}
</div>
</section>
<section class="low">
<h2>What was moved, and what it cost</h2>
<div class="pair">
{demo_figures.moved(tight)}
{demo_figures.time(ample, tight)}
</div>
</section>
<section>
<h2>The numbers</h2>
{table(runs)}
</section>
<section>
<h2>It did train</h2>
<div class="pair">
{demo_figures.loss(runs)}
{how_made(runs, command)}
</div>
</section>
</main>
</body>
</html>
"""


# ---- words


def equal(runs: Sequence[Run]) -> bool:
    """Whether all runs gave the same weights."""
    return len({run["sha256"] for run in runs}) == 1


def share(tight: Run, ample: Run) -> str:
    """The third run's budget as a part of the second run's peak."""
    return f"{budget_of(tight) / peak_of(ample):.0%}".replace("%", "\N{NO-BREAK SPACE}%")


def times(ratio: float | None) -> str:
    """A factor with its sign."""
    return "?" if ratio is None else f"{rounded(ratio)}{TIMES}"


def headline(runs: Sequence[Run]) -> str:
    """The page in one line."""
    _, ample, tight = runs
    bits = "Same bits" if equal(runs) else "Different bits"
    ratio = times_of(tight, ample, clock_of(tight))
    return f"{bits}, {share(tight, ample)} of the memory, {times(ratio)} the time"


# ---- at one glance


def tile(kind: str, title: str, big: str, body: str, note: str) -> str:
    """One of the three answers; ``title``, ``big`` and ``note`` are text, ``body`` is HTML."""
    return (
        f'<article class="tile {kind}"><h2>{escape(title)}</h2><p class="big">{escape(big)}</p>'
        f'{body}<p class="note">{escape(note)}</p></article>'
    )


def bars(of: Iterable[tuple[str, float, str, str]]) -> str:
    """Bars below each other: name, length from 0 to 1, text, colour."""
    return "".join(
        f'<div class="bar"><span>{escape(name)}</span><b>{escape(text)}</b>'
        f'<i class="{colour}" style="width:{length:.1%}"></i></div>'
        for name, length, text, colour in of
    )


def same_bits(runs: Sequence[Run]) -> str:
    """The hashes, as text and as a pattern: equal hashes look equal."""
    hashes = "".join(
        f'<div class="bar"><dt>{escape(short(run))}</dt><dd><code>{run["sha256"][:SHOWN]}</code></dd>'
        f"{pattern(run['sha256'])}</div>"
        for run in runs
    )
    what = f"SHA-256 of all {runs[0]['parameters']:,} weights at the end"
    if not equal(runs):
        return tile(
            "bad",
            "Different bits",
            "\N{BALLOT X} not equal",
            f"<dl>{hashes}</dl>",
            f"{what}: the runs differ.",
        )
    losses = (
        "every loss on the way is, too"
        if len({tuple(run["losses"]) for run in runs}) == 1
        else "not all losses"
    )
    return tile(
        "same",
        "Same bits",
        "\N{CHECK MARK} all equal",
        f"<dl>{hashes}</dl>",
        f"{what} is the same; {losses}.",
    )


def pattern(digits: str) -> str:
    """A hash as stripes, one a byte."""
    values = bytes.fromhex(digits)
    stripes = "".join(
        f'<rect x="{place}" width="1" height="1" opacity="{value / 255:.2f}"/>'
        for place, value in enumerate(values)
    )
    box = f'viewBox="0 0 {len(values)} 1" preserveAspectRatio="none"'
    return f'<svg class="pattern" {box} aria-hidden="true">{stripes}</svg>'


def less_memory(ample: Run, tight: Run) -> str:
    """Peaks on the accelerators."""
    most, little = peak_of(ample), peak_of(tight)
    unit = bytes_unit(most)
    held = all(node["peak"] <= node["budget"] for node in tight["stats"]["nodes"].values())
    return tile(
        "memory" if held else "bad",
        "Less memory",
        f"{unit.number(little)} of {unit.text(most)}",
        bars(
            [
                (short(ample), 1, unit.text(most), "gpu0"),
                (short(tight), little / most, unit.text(little), "gpu0"),
            ]
        ),
        f"The most that was on the {of_gpus(tight)} at any moment, kernels' own memory included. The budget "
        f"of {bytes_text(budget_of(tight))} was {'never passed' if held else 'NOT KEPT'}; what did not fit "
        "was in host memory meanwhile.",
    )


def price(plain: Run, ample: Run, tight: Run) -> str:
    """The cost of less memory, and the reason."""
    clock = clock_of(tight)
    fast, slow = typical(ample, clock) or 0.0, typical(tight, clock) or 0.0
    unit = seconds_unit(slow)
    longest = max(fast, slow) or 1.0
    here = [typical(run, "seconds") or 0.0 for run in (plain, ample, tight)]
    texts = [seconds_unit(*here).text(seconds) for seconds in here]
    if is_simulated(tight):
        whose = (
            "Times are by the simulated GPU's clock. This computer, which computes for the GPU as well, took "
            f"{texts[1]} and {texts[2]} for a step, and {texts[0]} by plain PyTorch."
        )
    else:
        whose = f"By plain PyTorch a step took {texts[0]}."
    return tile(
        "price",
        "The price",
        f"{times(slow / fast if fast else None)} the time",
        bars(
            [
                (f"a step with {short(ample)}", fast / longest, unit.text(fast), "time0"),
                (f"a step with {short(tight)}", slow / longest, unit.text(slow), "time1"),
            ]
        ),
        f"{why(tight)} {whose}",
    )


def why(run: Run) -> str:
    """A step's moves, in words."""
    if not any(typical(run, f"bytes_{kind}") for kind in ("fetched", "written_back", "between")):
        return "All fits, and nothing is moved."
    texts = moved_texts(run)
    across = f", {between} go from GPU to GPU" if (between := texts.get("from GPU to GPU")) else ""
    return (
        f"Why: not all fits at once, so in each step {texts['fetched']} come to the {of_gpus(run)} and "
        f"{texts['written back']} leave{across}."
    )


# ---- the table, and where it all comes from


def table(runs: Sequence[Run]) -> str:
    """All numbers, one column a run; the unit of a row stands beside its name."""
    head = "".join(f'<th scope="col">{escape(short(run))}</th>' for run in runs)

    def line(row: Row) -> str:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        title = f'<th scope="row">{escape(row.title)} <span>{escape(row.unit)}</span></th>'
        return f"<tr{' class=hash' if row.unit == HASH else ''}>{title}{cells}</tr>"

    return (
        f'<table><thead><tr><th scope="col">quantity <span>unit</span></th>{head}</tr></thead>'
        f"<tbody>{''.join(map(line, rows(runs)))}</tbody></table>"
        '<p class="note">A step\'s numbers are those of the median one, on this computer of the fastest one, '
        "since other programs only make steps slower; the first one does not count. Slowdowns by the "
        "simulated clock are beside the run with room for all, those on this computer beside plain PyTorch."
        "</p>"
    )


def commit() -> str:
    """The commit that this file is of, or nothing outside of a clone."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
        )
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, check=False)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + (", changed" if changed.returncode else "")


def how_made(runs: Sequence[Run], command: Sequence[str]) -> str:
    """The way to make these numbers again."""
    facts = {"command": f"<code>{escape(shlex.join(command))}</code>"}
    if found := commit():
        facts["commit"] = f"<code>{escape(found)}</code>"
    if settings := os.environ.get("INNKEEPER_SIM"):
        facts["INNKEEPER_SIM"] = f"<code>{escape(settings)}</code>"
    for run in runs:
        if run["nodes"]:
            facts[f"nodes, {short(run)}"] = f"<code>{escape(run['nodes'])}</code>"
    facts["versions"] = escape(f"Innkeeper {version('innkeeper')}, PyTorch {version('torch')}")
    facts["computer"] = escape(f"{platform.machine()}, {os.cpu_count()} processors")
    facts["made"] = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    note = (
        "A simulated GPU computes with the CPU's kernels, so its bits are the CPU's. Its clock is a model of "
        "a GPU's data sheet, not a measurement."
    )
    below = f'<p class="note">{escape(note)}</p>' if any(map(is_simulated, runs)) else ""
    return f'<div class="made"><h3>How this was made</h3><dl>{lines}</dl>{below}</div>'
