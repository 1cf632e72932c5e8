"""One run of the demo: ``train_text.py`` as it is, and around it what the managed device can tell of the run.

python examples/demo_run.py --write FILE -- OPTIONS OF train_text.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import train_text

SAMPLE_EVERY = 50  # operators: about a hundred samples a step are too many to plot, and ten too few


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains; writes losses, seconds and hash, and for ``managed`` statistics and samples, as JSON."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--write", type=Path, required=True)
    p.add_argument("training", nargs="*")
    args = p.parse_args(arguments)
    training = train_text.parse(args.training)
    if not training.device.startswith("managed"):
        result = asdict(train_text.train(training))
    else:
        import innkeeper

        manager = innkeeper.manager()
        manager.start_samples(SAMPLE_EVERY)
        result = asdict(train_text.train(training))
        result |= {"samples": manager.stop_samples(), "stats": innkeeper.stats()}
    args.write.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
