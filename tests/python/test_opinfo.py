"""Every operator of PyTorch's own OpInfo database against the CPU, by the acceptance script beside the tree.

The script forks a child for each operator, so a crash is one failure. What may fail stands, with its reason,
in opinfo_known.txt. The machine is one simulated GPU whose results are poison until somebody waits for them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT.parent / "shared" / "acceptance" / "opinfo_check.py"
SUMMARY = re.compile(r"opinfo: (\d+) passed, (\d+) failed, (\d+) skipped")

pytestmark = pytest.mark.skipif(
    not SCRIPT.exists(), reason="the acceptance script is not beside this checkout"
)


def known() -> set[str]:
    lines = (Path(__file__).parent / "opinfo_known.txt").read_text().splitlines()
    return {line.split("|")[0].strip() for line in lines if line and not line.startswith("#")}


def run_all(*options: str, stress: str = "") -> tuple[int, list[str], str]:
    """Returns how many passed, the names of those that failed, and what the script printed."""
    environment = dict(os.environ, INNKEEPER_NODES="sim:1x64MiB,host:1GiB", INNKEEPER_SIM="late")
    environment.pop("INNKEEPER_STRESS", None)
    if stress:
        environment["INNKEEPER_STRESS"] = stress
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        env=environment, capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    found = SUMMARY.search(done.stdout)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    failures = [line for line in done.stdout.splitlines() if line and not line.startswith(("#", "opinfo:"))]
    return int(found[1]), failures, done.stdout[-6000:]


def assert_only_known(failures: list[str], printed: str) -> None:
    unknown = [line for line in failures if line.split(" ")[0] not in known()]
    assert not unknown, "\n".join(unknown) or printed
    assert not [line for line in failures if "died of signal" in line]


def test_float32() -> None:
    passed, failures, printed = run_all("--dtype", "float32")
    assert_only_known(failures, printed)
    assert passed >= 630


@pytest.mark.parametrize("stress", ["evict", "hash"])
def test_float32_under_stress(stress: str) -> None:
    passed, failures, printed = run_all("--dtype", "float32", "--samples", "2", stress=stress)
    assert_only_known(failures, printed)
    assert passed >= 630


def test_other_dtypes() -> None:
    _, failures, printed = run_all(
        "--dtype", "float64", "bfloat16", "int64", "bool", "complex64", "--samples", "2"
    )  # fmt: skip
    assert_only_known(failures, printed)
