"""Runs PyTorch's own tests of torch.distributed on CPU tensors with the package imported first.

They come from PyTorch's wheel (torch.testing._internal), for Gloo, in two processes each. A failed test runs
again without the package. If it passes then, the fault is Innkeeper's, and this script fails.

    python tools/pytorch_own.py
    python tools/pytorch_own.py -k "test_broadcast_group or test_all_reduce_sum_async"
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from junit import cases

TESTS = Path(__file__).resolve().parent.parent / "tests" / "pytorch_own" / "test_distributed.py"


def run(choice: list[str], loaded: bool) -> dict[str, str]:
    """The result of each chosen test: ``passed``, ``skipped`` or ``failed``."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("barrier", "init_dir"):  # meeting places of the tests' processes
            (Path(directory) / name).mkdir()
        report = Path(directory) / "report.xml"
        environment = os.environ | {
            "PYTORCH_OWN_LOADED": "1" if loaded else "0",
            "BACKEND": "gloo",
            "WORLD_SIZE": "2",
            "TEMP_DIR": directory,
            "INIT_METHOD": "env://",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29777",
            "INNKEEPER_NODES": "sim:2x16MiB,host:1GiB",
        }
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(TESTS.parent),
        ]
        done = subprocess.run(
            [*pytest, "-c", os.devnull, f"--junitxml={report}", str(TESTS), *choice],
            env=environment, cwd=directory, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not report.exists():
            raise SystemExit(done.stdout + done.stderr)
        return {case.get("name", ""): outcome for case, outcome in cases(report)}


def main() -> int:
    """Runs the tests and prints how many passed; 1 if one fails because of Innkeeper."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-k", default="", help="only the tests that pytest's expression names")
    options = parser.parse_args()
    found = run(["-k", options.k] if options.k else [], loaded=True)
    counts = {kind: sum(each == kind for each in found.values()) for kind in ("passed", "skipped", "failed")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()) + " with the package")
    failed = [name for name, each in found.items() if each == "failed"]
    if failed:
        again = run(["-k", " or ".join(failed)], loaded=False)
        failed = [name for name in failed if again.get(name) == "passed"]
        print(f"{len(failed)} of those that failed pass without it", *failed, sep="\n  ")
    return 1 if failed or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
