"""The GPU of the tests of this directory, and the files of their measurements.

INNKEEPER_GPU_TESTS=sim runs those that need no CUDA on a simulated GPU: that tries the tests, not a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repository import ROOT

import torch

MIB = 1 << 20
KIND = os.environ.get("INNKEEPER_GPU_TESTS", "cuda")
REAL = KIND == "cuda"
# A GPU computes fast: a simulated one and the fake one (make cuda) take small models and few steps.
FAST = REAL and "FAKE_CUDA_KERNELS" not in os.environ
NODE = f"{KIND}:0"
PLAIN = "cuda" if REAL else "cpu"  # Device that runs the same kernels without Innkeeper.
HAS_GPU = torch.version.cuda is not None and torch.cuda.is_available()


def nodes(budget: int, host: str = "4GiB") -> str:
    """The setting for one GPU with this budget, and the host."""
    return f"cuda:0:{budget}B,host:{host}" if REAL else f"sim:1x{budget}B,host:{host}"


def why_not() -> str | None:
    """Reason why the tests cannot run here; None where they can."""
    if not REAL or HAS_GPU:
        return None
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA"
    return "PyTorch finds no CUDA device"


def synchronize() -> None:
    if REAL:
        torch.cuda.synchronize()
    if torch.accelerator.is_available():  # Selects the managed device if it exists.
        torch.accelerator.synchronize()


def seconds_of(step: Any, steps: int) -> float:
    """Seconds a call, by the clock, with the GPU idle before and after."""
    synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - began) / steps


def took(*parts: Callable[[], None]) -> float:
    """Seconds until all that the parts start is done: by the wall's clock, or a simulated GPU's."""

    def now() -> float:
        if REAL:
            return time.perf_counter()
        import innkeeper

        return innkeeper.stats()["simulated_seconds"]

    synchronize()
    began = now()
    for part in parts:
        part()
    synchronize()
    return now() - began


def run_python(script: str, timeout: float = 500, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own, where it can import this directory's modules."""
    directories = [
        str(Path(__file__).parent),
        str(ROOT / "tests/support/python"),
        os.environ.get("PYTHONPATH", ""),
    ]
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, directories)), **environment}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def answer_of(script: str, timeout: float = 500, **environment: str) -> Any:
    """Last line that a script prints, as JSON; the script must succeed."""
    done = run_python(script, timeout, **environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def results_file() -> Path:
    """Directory from OUT=DIRECTORY; build/gpu by default."""
    return Path(os.environ.get("OUT") or ROOT / "build/gpu") / f"results-{KIND}.json"


def machine() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    gpu = torch.cuda.get_device_name(0) if REAL else "simulated: no result"
    return {"gpu": gpu, "PyTorch": torch.__version__, "CUDA": torch.version.cuda or "", "commit": commit}


def record(test: str, **figures: Any) -> None:
    """Adds a test's figures to the results; `bench/gpu_table --tests FILE` prints them as rows."""
    path = results_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text()) if path.exists() else {}
    results["machine"] = machine()
    results[test] = results.get(test, {}) | figures
    path.write_text(json.dumps(results, indent=1) + "\n")
