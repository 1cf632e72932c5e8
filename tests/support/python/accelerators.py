"""Which accelerators tests take: simulated ones, or with INNKEEPER_TEST_ON=cuda GPUs (fake: `make cuda`)."""

from __future__ import annotations

import os
import re

KIND = os.environ.get("INNKEEPER_TEST_ON", "sim")


def here(text: str) -> str:
    """A setting or name for simulated accelerators, translated to those in use: sim:2x16MiB, sim:0."""
    if KIND == "sim":
        return text

    def gpus(found: re.Match[str]) -> str:
        count, size = found.groups()
        return ",".join(f"{KIND}:{i}:{size}" for i in range(int(count)))

    return re.sub(r"\bsim:(\d+)\b(?!x)", rf"{KIND}:\1", re.sub(r"\bsim:(\d+)x(\w+)", gpus, text))
