"""What the engine has done, as a dict and as text."""

from __future__ import annotations

from typing import Any

from innkeeper import _C

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def stats() -> dict[str, Any]:
    """What was done since the last ``manager().reset_stats()``.

    Returns:
        ``ops``, ``fetches``, ``evictions`` (counts), ``bytes_fetched``, ``bytes_written_back``,
        ``bytes_between`` (bytes that crossed links), ``escaped`` (replicas that somebody else holds now),
        ``planned_rounds`` (of a program, followed by a plan from end to end), ``divergences`` (rounds in
        which the program left its plan), ``round`` and ``bytes_bound`` (None until a round was followed to
        its end; else of the last one, a dict of ``operators, bytes_planned, bytes_fetched`` and
        ``bytes_short``, with which more of room nothing would have to move; and the least bytes that any
        plan would fetch in it), ``simulated_seconds`` (the simulators' clock), and ``nodes``: name to a dict
        of ``budget, resident, peak, replicas, pinned, recount`` (bytes), ``evictions, ops``.

    """
    now = _C.stats()
    return {**now, "bytes_bound": now["round"] and now["round"].pop("bytes_bound")}


def format_bytes(count: int) -> str:
    """``"64.0 MiB"``; sizes below 10 KiB exactly, in bytes."""
    if abs(count) < 10 << 10:
        return f"{count} B"
    size = float(count)
    for unit in _UNITS:
        if abs(size) < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.1f} {unit}"


def summary() -> str:
    """``stats()`` as a few lines of text: a line for each node, then the totals."""
    now = stats()
    header = ("node", "budget", "resident", "peak", "pinned", "evictions", "operators")
    rows = [header]
    for name, node in now["nodes"].items():
        sizes = [format_bytes(node[key]) for key in ("budget", "resident", "peak", "pinned")]
        rows.append((name, *sizes, f"{node['evictions']:,}", f"{node['ops']:,}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.append(
        f"{now['ops']:,} operators; {now['fetches']:,} fetches, {now['evictions']:,} evictions; "
        f"{format_bytes(now['bytes_fetched'])} fetched, "
        f"{format_bytes(now['bytes_written_back'])} written back, "
        f"{format_bytes(now['bytes_between'])} between accelerators"
    )
    if now["planned_rounds"]:
        lines.append(
            f"{now['planned_rounds']:,} rounds moved as planned, {now['divergences']:,} left before their end"
        )
    if now["round"]:
        last = now["round"]
        lines.append(
            f"a round: {last['operators']:,} operators, {format_bytes(last['bytes_fetched'])} fetched by the "
            f"last, {format_bytes(last['bytes_planned'])} planned; at this budget no plan fetches less than "
            f"{format_bytes(now['bytes_bound'])}, and with {format_bytes(last['bytes_short'])} more of it "
            "nothing would move"
        )
    if now["simulated_seconds"]:
        lines.append(f"{now['simulated_seconds']:.3f} s on the simulated machine")
    return "\n".join(lines)
