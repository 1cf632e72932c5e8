"""The engine's statistics, as objects and as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from torch.optim import Optimizer

import torch
from innkeeper import _C
from innkeeper.stats_types import Stats
from torch import Tensor, nn

_MOST_MOVED = 12  # lines about blocks moved in a period


def stats() -> Stats:
    """The counters since the last ``manager().reset_stats()``: counts, bytes and seconds; see ``Stats``.

    The result is read by attributes, ``stats().nodes["host"].peak``, and as a mapping,
    ``stats()["nodes"]["host"]["peak"]``. It does not change afterwards.
    """
    return Stats.of(_C.stats())


def format_bytes(count: int) -> str:
    """``"64.0 MiB"``; sizes below 10 KiB exactly, in bytes."""
    if abs(count) < 10 << 10:
        return f"{count} B"
    size = float(count)
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size /= 1024
        unit = larger
    return f"{size:.1f} {unit}"


def _tensors_of(owners: tuple[nn.Module | Optimizer, ...]) -> Iterator[tuple[str, object]]:
    """Objects of modules and optimizers, by name; an optimizer's parameters have their modules' names."""
    names: dict[Tensor, str] = {}
    for owner in owners:
        if isinstance(owner, nn.Module):
            for name, parameter in owner.named_parameters():
                names.setdefault(parameter, name)
                yield name, parameter
            yield from owner.named_buffers()
        elif not isinstance(owner, Optimizer):
            raise TypeError(f"expected a module or an optimizer, got {type(owner).__name__}")
    yield from ((f"{name}.grad", parameter.grad) for parameter, name in names.items())
    for owner in owners:
        if isinstance(owner, Optimizer):
            parameters = (each for group in owner.param_groups for each in group["params"])
            for number, parameter in enumerate(parameters):
                name = names.get(parameter, f"parameter {number}")
                yield name, parameter
                state = owner.state.get(parameter)
                for key, held in list(state.items()) if isinstance(state, dict) else ():
                    each = held if isinstance(held, (list, tuple)) else [held]
                    yield from ((f"{key} of {name}", one) for one in each)


def _moved(owners: tuple[nn.Module | Optimizer, ...]) -> list[str]:
    """Lines about the planned moves of the last period, most bytes first."""
    named: dict[int, str] = {}
    with torch._C.DisableTorchFunction():
        for name, held in _tensors_of(owners):
            if isinstance(held, Tensor) and _C.is_managed(held.device) and held.layout is torch.strided:
                # Wrappers and fake tensors have no bytes of their own.
                with suppress(RuntimeError, TypeError):
                    named.setdefault(_C.block_number(held), name)
    rows = []
    others = [0, 0, 0]
    for block, (bytes_in, bytes_out) in _C.planned_moves().items():
        if block in named or block == 0:
            rows.append((bytes_in, bytes_out, named.get(block, "what each period creates")))
        else:
            others = [others[0] + bytes_in, others[1] + bytes_out, others[2] + 1]
    rows.sort(key=lambda row: (-row[0] - row[1], row[2]))
    if len(rows) > _MOST_MOVED:
        rest = rows[_MOST_MOVED - 1 :]
        rows[_MOST_MOVED - 1 :] = [(sum(r[0] for r in rest), sum(r[1] for r in rest), f"{len(rest)} more")]
    if others[2]:
        rows.append((others[0], others[1], f"{others[2]} tensors that nobody named here owns"))
    sizes = [(format_bytes(row[0]), format_bytes(row[1])) for row in rows]
    wide = max((len(size) for pair in sizes for size in pair), default=0)
    lines = [
        f"  {size_in.rjust(wide)} in  {size_out.rjust(wide)} out  {row[2]}"
        for (size_in, size_out), row in zip(sizes, rows, strict=True)
    ]
    return ["moved in a period, as planned (out: at most):", *lines] if rows else []


def summary(*owners: nn.Module | Optimizer) -> str:
    """``stats()`` as a few lines of text: a line for each node, then the totals.

    Args:
        owners: modules and optimizers. If a period is planned, the blocks that it moves most are listed, with
            their tensors' names there: ``layers.0.weight``, ``exp_avg of layers.0.weight``. (If several share
            a storage, the first one's.) Gradients are read, so PyTorch allows it only on the thread that
            trains, or while no thread does.

    Raises:
        TypeError: an owner is neither a module nor an optimizer.

    """
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
    if now["bytes_from_disk"] or now["bytes_to_disk"]:
        lines[-1] += (
            f"; of these {format_bytes(now['bytes_from_disk'])} came from the disk and "
            f"{format_bytes(now['bytes_to_disk'])} went there"
        )
    if now["planned_periods"]:
        again = f"; {now['recomputed']:,} results recomputed" if now["recomputed"] else ""
        lines.append(
            f"{now['planned_periods']:,} periods moved as planned, {now['divergences']:,} left before their "
            f"end{again}"
        )
    if now["period"]:
        last = now["period"]
        plan = "plan that computes nothing again" if now["recomputed"] else "plan"
        lines.append(
            f"a period: {last['operators']:,} operators, {format_bytes(last['bytes_fetched'])} fetched by "
            f"the last, {format_bytes(last['bytes_planned'])} planned; at this budget no {plan} fetches less "
            f"than {format_bytes(now['bytes_bound'])}, and with {format_bytes(last['bytes_short'])} more of "
            "it nothing that is planned would move"
        )
        if now["time_bound"] is not None:
            lines.append(
                f"it took {1e3 * last['seconds']:.2f} ms; at this budget no {plan} takes less than "
                f"{1e3 * now['time_bound']:.2f} ms, and where nothing moves it takes "
                f"{1e3 * last['kernel_seconds']:.2f} ms"
            )
    if owners:
        lines += _moved(owners)
    if now["simulated_seconds"]:
        lines.append(f"{now['simulated_seconds']:.3f} s on the simulated machine")
    return "\n".join(lines)
