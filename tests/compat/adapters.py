"""The tests of libraries' adapters, with the oldest versions that are supported.

python tests/compat/adapters.py --json build/compat/adapters.json [--only EXPRESSION]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import options, outcomes, write

TESTS = Path(__file__).parent.parent / "python" / "libraries"
LIBRARIES = ["accelerate", "lightning", "transformers"]
SECTION = """
## Adapters

`python/innkeeper/integrations` makes libraries that keep lists of devices use managed. `make test` tries it
with the newest versions. With the oldest that are supported, {versions},
at {commit}, {passed} of {tried} tests pass.
"""


def tried(choice: str) -> list[dict[str, Any]]:
    """A row for each test."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        files = [str(TESTS / f"test_{name}.py") for name in ("libraries", "lightning")]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", str(min(os.cpu_count() or 1, 4)),
             "-p", "no:cacheprovider", f"--junitxml={report}", *files, "-k", choice],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        sys.stdout.write(done.stdout)
        if not report.exists():
            raise SystemExit(done.returncode)
        return [{"name": name, "result": result} for name, result in outcomes(report).items()]


def section(found: dict[str, Any]) -> str:
    """Section of the page on these results."""
    results = [row["result"] for row in found["rows"]]
    named = [f"{library} {found['versions'][library]}" for library in LIBRARIES]
    return SECTION.format(
        versions=", ".join(named),
        commit=found["versions"]["commit"],
        passed=results.count("passed"),
        tried=len(results),
    )


def main() -> int:
    """Runs the tests; writes a row for each."""
    args = options(__doc__, "test", "of the tests, as pytest's -k").parse_args()
    rows = tried(args.only)
    if args.json is not None:
        write(args.json, LIBRARIES, rows)
    return int(any(row["result"] != "passed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
