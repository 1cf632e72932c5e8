"""One run of the demo: ``train_text.py`` unchanged, with a report of the run.

python examples/demo_run.py --write FILE -- OPTIONS OF train_text.py
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import train_text
from torch.optim.optimizer import register_optimizer_step_post_hook

SAMPLE_EVERY = 20  # operators: a step has some hundreds, and its rise and fall is to be seen
COUNTERS = ("ops", "evictions", "bytes_fetched", "bytes_written_back", "bytes_between", "simulated_seconds")


def note_steps(stats: Callable[[], dict[str, Any]] | None) -> list[dict[str, Any]]:
    """A list that gets an entry at the end of each step: the clock, and of ``stats`` the totals by then."""
    steps: list[dict[str, Any]] = []

    def note(*_: object) -> None:
        now = stats() if stats else {}
        steps.append({key: now[key] for key in COUNTERS if key in now} | {"seconds": time.perf_counter()})

    register_optimizer_step_post_hook(note)
    return steps


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains; writes losses, seconds, hash and steps, and for ``managed`` statistics and samples, as JSON."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--write", type=Path, required=True)
    p.add_argument("training", nargs="*")
    args = p.parse_args(arguments)
    training = train_text.parse(args.training)
    if not training.device.startswith("managed"):
        steps = note_steps(None)
        result = asdict(train_text.train(training))
    else:
        import innkeeper

        manager = innkeeper.manager()
        steps = note_steps(innkeeper.stats)
        manager.start_samples(SAMPLE_EVERY)
        result = asdict(train_text.train(training))
        result |= {"samples": manager.stop_samples(), "stats": innkeeper.stats()}
    args.write.write_text(json.dumps(result | {"steps": steps}))


if __name__ == "__main__":
    main()
