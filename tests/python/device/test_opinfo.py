"""Every operator of PyTorch's own OpInfo database against the CPU, bit for bit, by the acceptance script
beside this tree.

The script forks a child for each operator, so a crash is one failure. What may fail stands, with its reason,
in opinfo_known.txt. The machine is one simulated GPU whose results are poison until somebody waits for them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from repository import ROOT

SCRIPT = ROOT.parent / "shared" / "acceptance" / "opinfo_check.py"
SUMMARY = re.compile(r"opinfo: (\d+) passed, (\d+) failed, (\d+) skipped")

pytestmark = pytest.mark.skipif(
    not SCRIPT.exists(), reason="the acceptance script is not beside this checkout"
)


def known() -> set[str]:
    lines = (Path(__file__).parent / "opinfo_known.txt").read_text().splitlines()
    return {line.split("|")[0].strip() for line in lines if line and not line.startswith("#")}


RUNS: dict[str, tuple[str, tuple[str, ...]]] = {  # name: INNKEEPER_STRESS, the script's options
    "float32": ("", ("--dtype", "float32")),
    "float32, evicted after each operator": ("evict", ("--dtype", "float32", "--samples", "2")),
    "float32, read operands hashed": ("hash", ("--dtype", "float32", "--samples", "2")),
} | {
    dtype: ("", ("--dtype", dtype, "--samples", "2"))
    for dtype in ("bfloat16", "int64", "bool", "complex64")  # float64 takes float32's ways: by hand
}


def run(name: str) -> subprocess.CompletedProcess[str]:
    stress, options = RUNS[name]
    environment = dict(os.environ, INNKEEPER_NODES="sim:1x64MiB,host:1GiB", INNKEEPER_SIM="late")
    environment.pop("INNKEEPER_STRESS", None)
    if stress:
        environment["INNKEEPER_STRESS"] = stress
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--exact", *options],
        env=environment, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """All runs, under way: each uses one core."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {name: pool.submit(run, name) for name in RUNS}
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.mark.parametrize("name", RUNS)
def test_opinfo(name: str, runs: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    done = runs[name].result()
    found = SUMMARY.search(done.stdout)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    failures = [line for line in done.stdout.splitlines() if line and not line.startswith(("#", "opinfo:"))]
    unknown = [line for line in failures if line.split(" ")[0] not in known()]
    assert not unknown, "\n".join(unknown)
    assert not [line for line in failures if "died of signal" in line]
    if name.startswith("float32"):
        assert int(found[1]) + len(failures) >= 634, "operators that were tried before are skipped"
