"""PyTorch's own databases, and programs that ask for an accelerator: on the CPU as without us; on managed.

python tests/compat/other_devices.py --json build/compat/other_devices.json [-k EXPRESSION]

The databases of operators, lists of tensors (foreach), modules and optimizers come out of PyTorch's wheel.
Each of their tests runs on CPU tensors without the package and with it, and on managed; bits are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from report import outcomes

OWN = Path(__file__).resolve().parents[1] / "pytorch_own"
KINDS = {
    "test_operator_": "operators",
    "test_lists_": "lists of tensors",
    "test_module_": "modules",
    "test_optimizer_": "optimizers",
}
# They show unwritten memory; their copies have storages of their own; their indices are the CPU's.
NOT_COMPARED = ("empty", "as_strided_partial_views", "tensor_split")
# In one of eight processes these have other bits on the CPU alone, due to the alignment of memory.
NOT_REPEATABLE = ("linalg_lstsq",)
Run = dict[str, str]
STAYS = """
### What stays as on an accelerator, not as on the CPU

- Optimizers take lists (`foreach`) by default. ASGD, NAdam and RAdam have other formulas there:
  `foreach=False` has the CPU's bits. All that are `capturable` have other formulas, which the CPU refuses.
- Autocast goes by CUDA's lists of operators.
- A group norm whose input lay channels last and was kept by `save_on_cpu`, or by a hook of your own that
  copies, has a backward that adds in another order: its last bits differ.
- AOTInductor makes no package of managed tensors, since its code holds weights of its own. `torch.compile`
  takes them.
- Lengths of packed sequences are on the CPU, as on CUDA. `to_sparse_semi_structured` is CUDA's alone.
- `torch.accelerator` names managed, in a process that has imported innkeeper.
"""

HEAD = """## Other devices

PyTorch's own databases of operators, lists of tensors, modules and optimizers in float32, on CPU tensors:
with innkeeper imported {unlike} of {tried:,} tests end otherwise than without it, or have other bits. Of
{programs} programs that use what asks for an accelerator (`DataParallel`, checkpoints, loaders, process
groups, `fully_shard`, ...) {programs_unlike} say something else.

The same tests on the managed device, on one simulated GPU, against the CPU's bits:

| | the same | differ | fail |
|---|---|---|---|
"""


def run(loaded: bool, device: str, choice: str) -> Run:
    """Result of each test: a digest of its results, ``failed``, or ``skipped``."""
    with tempfile.TemporaryDirectory() as directory:
        report, digests = Path(directory) / "report.xml", Path(directory) / "found.json"
        environment = os.environ | {
            "PYTORCH_OWN_LOADED": "1" if loaded else "0",
            "PYTORCH_OWN_DEVICE": device,
            "PYTORCH_OWN_FOUND": str(digests),
            "INNKEEPER_NODES": "sim:1x64MiB,host:1GiB",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(OWN),
             "-c", os.devnull, f"--junitxml={report}", f"{OWN}/test_databases.py", "-k", choice or "test"],
            env=environment, cwd=directory, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not report.exists() or not digests.exists():
            raise SystemExit(done.stdout + done.stderr)
        found: Run = json.loads(digests.read_text())
        found |= {name: said for name, said in outcomes(report).items() if said != "passed"}
        return found


def programs(*options: str) -> list[str]:
    """Lines that the programs print."""
    done = subprocess.run(
        [sys.executable, str(OWN / "programs.py"), *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout.splitlines()


def compare(choice: str) -> dict[str, Any]:
    """Runs all tests."""
    plain = run(False, "cpu", choice)
    loaded, managed = run(True, "cpu", choice), run(True, "managed", choice)
    unlike = [name for name, found in plain.items() if {loaded[name], managed[name]} != {found}]
    again = run(False, "cpu", " or ".join(unlike)) if unlike else {}
    sure = {
        name
        for name, found in plain.items()
        if again.get(name, found) == found != "skipped" and not any(word in name for word in NOT_REPEATABLE)
    }
    rows = [
        {"name": name, "kind": kind_of(name), "result": result(plain[name], managed[name])}
        for name in sorted(sure)
        if plain[name] != "failed" and not any(word in name for word in NOT_COMPARED)
    ]
    without, beside = programs(), programs("--with-innkeeper")
    return {
        "tried": len(sure),
        "unlike": sorted(name for name in sure if loaded[name] != plain[name]),
        "programs": len(without),
        "programs unlike": [a for a, b in zip(without, beside, strict=True) if a != b],
        "rows": rows,
    }


def kind_of(name: str) -> str:
    """Database to which a test belongs."""
    return next(kind for begin, kind in KINDS.items() if name.startswith(begin))


def result(expected: str, found: str) -> str:
    """Result of a test on the managed device."""
    if found == "failed":
        return "fail"
    return "the same" if found == expected else "differ"


def section(found: dict[str, Any]) -> str:
    """Section of docs/compatibility.md."""
    text = HEAD.format(
        tried=found["tried"],
        unlike=len(found["unlike"]),
        programs=found["programs"],
        programs_unlike=len(found["programs unlike"]),
    )
    counts = Counter((row["kind"], row["result"]) for row in found["rows"])
    for kind in KINDS.values():
        text += (
            f"| {kind} | {counts[kind, 'the same']} | {counts[kind, 'differ']} | {counts[kind, 'fail']} |\n"
        )
    for what in ("differ", "fail"):
        names = [row["name"].removeprefix("test_") for row in found["rows"] if row["result"] == what]
        if names:
            text += (
                "\n" + textwrap.fill(f"They {what}: {', '.join(names)}.", 120, break_long_words=False) + "\n"
            )
    return text + STAYS


def main() -> int:
    """Prints the findings; returns 1 if another device differs from before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="where what was found is written")
    parser.add_argument("-k", default="", help="only the tests that pytest's expression names")
    options = parser.parse_args()
    found = compare(options.k)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))
    print(section(found))
    return 1 if found["unlike"] or found["programs unlike"] else 0


if __name__ == "__main__":
    sys.exit(main())
