"""Every operator of PyTorch's own OpInfo database against the CPU, bit for bit, by opinfo_check.py.

The machine is one simulated GPU whose results are poison until they are waited for. opinfo_known.txt lists
the operators that may fail, each with its reason.

There are two forms. `test_opinfo` takes one sample of each operator in float32, about 100 seconds of one
processor, in the tier `test`. `test_opinfo_in_full` has the marker `nightly`: more samples, every dtype, and
stress, in about half an hour of two processors.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import RunProgram

SCRIPT = Path(__file__).with_name("opinfo_check.py")
SUMMARY = re.compile(r"^opinfo: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
CASES_OF_FLOAT32 = 634
DTYPES = (
    "float16", "bfloat16", "float64", "complex32", "complex64", "complex128",
    "bool", "uint8", "int8", "int16", "int32", "int64",
)  # fmt: skip
FULL: dict[str, tuple[str, tuple[str, ...]]] = {  # Name: INNKEEPER_STRESS, the script's options.
    "float32": ("", ("--dtype", "float32")),
    "float32, evicted after each operator": ("evict", ("--dtype", "float32", "--samples", "2")),
    "float32, read operands hashed": ("hash", ("--dtype", "float32", "--samples", "2")),
} | {dtype: ("", ("--dtype", dtype, "--samples", "2")) for dtype in DTYPES}


def known() -> set[str]:
    lines = SCRIPT.with_name("opinfo_known.txt").read_text().splitlines()
    return {line.split("|")[0].strip() for line in lines if line and not line.startswith("#")}


def compare(run_python: RunProgram, *options: str, stress: str = "") -> int:
    """Runs the script and checks its failures; returns the number of cases tried."""
    settings = {"INNKEEPER_SIM": "late", "INNKEEPER_STRESS": stress}
    nodes = "sim:1x64MiB,host:1GiB"
    done = run_python(SCRIPT, "--exact", *options, nodes=nodes, timeout=3600, **settings)
    found = SUMMARY.search(done.stdout)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    failures = [line for line in done.stdout.splitlines() if line and not line.startswith(("#", "opinfo:"))]
    unknown = [line for line in failures if line.split(" ")[0] not in known()]
    assert not unknown, "\n".join(unknown)
    assert not [line for line in failures if "died of signal" in line]
    assert len(failures) == int(found[2])
    return int(found[1]) + len(failures)


def test_opinfo(run_python: RunProgram) -> None:
    tried = compare(run_python, "--dtype", "float32", "--samples", "1")
    assert tried >= CASES_OF_FLOAT32, "operators that were tried before are skipped"


@pytest.mark.nightly
@pytest.mark.parametrize("name", FULL)
def test_opinfo_in_full(run_python: RunProgram, name: str) -> None:
    stress, options = FULL[name]
    tried = compare(run_python, *options, stress=stress)
    if name.startswith("float32"):
        assert tried >= CASES_OF_FLOAT32, "operators that were tried before are skipped"
