"""The program's run time from start to end, compared with other tools that show or pick GPUs.

``innkeeper pick`` and ``status`` run on the fake NVML of build/wheel with two GPUs; so do nvitop and gpustat.
GPUtil starts nvidia-smi: here a script replaces it that only prints the answer, so the driver's own tool
costs it nothing. Each is started many times, in turn. Wall time depends on the machine's load; processor time
(user and system, with children) hardly does. ``true`` shows the cost of starting any process. ``run`` grants
a lease as ``pick`` does, starts a keeper and a command, which is ``true``, and waits for them. The memory of
the two processes that stay beside a command is printed, too.

The other tools come from build/peers, else from this Python. ``python bench/cli_start.py --install`` makes
build/peers by pip; a missing tool is named and left out. ROUNDS is the number of rounds (21), --quick: once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "wheel"
PEERS = ROOT / "build" / "peers"
PACKAGES = ["nvitop", "gpustat", "gputil", "setuptools"]  # GPUtil imports distutils
SETTLED_S = 2.5  # a keeper frees memory that it no longer needs after a second
ROUNDS = int(os.environ.get("ROUNDS", "21"))
SCRIPT = """driver 550.54.15
gpu GPU-1000aaaa-0000-0000-0000-000000000000
  bus 00000000:11:00.0
  name NVIDIA H200
  memory 139G 512M 3G
  utilization 35 10
  power 210 700
  temperature 41
gpu GPU-2000bbbb-0000-0000-0000-000000000000
  bus 00000000:21:00.0
  name NVIDIA H200
  memory 139G 512M 0
  utilization 0 0
  power 75 700
  temperature 30
"""
# GPUtil's columns: index, uuid, load, total, used, free, driver, name, serial, two displays, temperature.
NVIDIA_SMI = """#!/bin/sh
echo '0, GPU-1000aaaa-0000-0000-0000-000000000000, 35, 142336, 3072, 139264, 550.54.15, H200, 1, No, No, 41'
echo '1, GPU-2000bbbb-0000-0000-0000-000000000000, 0, 142336, 0, 142336, 550.54.15, H200, 2, No, No, 30'
"""


@dataclass
class Contender:
    """A command, and the times of its runs, in milliseconds."""

    command: list[str]
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    failed: bool = False

    def run(self, env: dict[str, str]) -> None:
        """Once, from its start to its end."""
        begin = time.perf_counter()
        process = subprocess.Popen(
            self.command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        self.wall.append((time.perf_counter() - begin) * 1e3)
        self.processor.append((used.ru_utime + used.ru_stime) * 1e3)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.failed |= process.returncode != 0


def built() -> tuple[Path, Path]:
    """The program and the directory of the fake library."""
    program, fake = BUILD / "src/cli/innkeeper", BUILD / "tests/fake_nvml"
    if not program.exists() or not (fake / "libnvidia-ml.so.1").exists():
        sys.exit(f"{program} or {fake}/libnvidia-ml.so.1 is not there; make check builds both")
    return program, fake


def contenders(program: Path, python: str) -> tuple[dict[str, Contender], list[str]]:
    """Name -> command; and the packages that are not installed."""
    found = {
        "true": ["true"],
        "innkeeper pick": [str(program), "pick"],
        "innkeeper run -- true": [str(program), "run", "--", "true"],
        "innkeeper status": [str(program), "status"],
        "innkeeper status --json": [str(program), "status", "--json"],
        "python -c pass": [python, "-c", "pass"],
    }
    missing = []
    for name, module, words in (
        ("nvisel (as pick)", "nvitop", ["-m", "nvitop.select"]),
        ("nvitop -1 (as status)", "nvitop", ["-m", "nvitop", "-1"]),
        ("gpustat (as status)", "gpustat", ["-m", "gpustat"]),
        ("GPUtil (as status)", "GPUtil", ["-c", "import GPUtil; GPUtil.showUtilization(all=True)"]),
    ):
        looked = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False)
        if looked.returncode == 0:
            found[name] = [python, *words]
        elif module not in missing:
            missing.append(module)
    return {name: Contender(command) for name, command in found.items()}, missing


def memory_beside(program: Path, env: dict[str, str]) -> int:
    """KiB of the process that waits for a command and of its keeper, once they have settled (PSS)."""
    waits = subprocess.Popen([str(program), "run", "--", "sleep", "60"], env=env, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLED_S)
        keeper = Path(f"/proc/{waits.pid}/task/{waits.pid}/children").read_text().split()[0]
        lines = [
            line
            for pid in (str(waits.pid), keeper)
            for line in Path("/proc", pid, "smaps_rollup").read_text().splitlines()
        ]
    finally:
        waits.terminate()
        waits.wait()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def install() -> None:
    """Makes build/peers."""
    subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    subprocess.run([str(PEERS / "bin/pip"), "install", "--quiet", *PACKAGES], check=True)


def report(rounds: int, table: dict[str, Contender], missing: list[str]) -> None:
    """Prints a table."""
    others = os.getloadavg()[0]
    print(f"{rounds} times each in turn, {os.cpu_count()} processors, load {others:.1f}")
    width = max(map(len, table))
    print(f"{'ms':{width}}  {'wall: median':>13} {'best':>8}  {'processor: median':>18} {'best':>8}")
    for name, row in table.items():
        numbers = [statistics.median(row.wall), min(row.wall)]
        numbers += [statistics.median(row.processor), min(row.processor)]
        line = f"{name:{width}}  {numbers[0]:13.1f} {numbers[1]:8.1f}  {numbers[2]:18.1f} {numbers[3]:8.1f}"
        print(line + ("  (ended with an error)" if row.failed else ""))
    if missing:
        print(f"not installed, left out: {', '.join(missing)}; python bench/cli_start.py --install gets them")


def main() -> None:
    """Measures all in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--install", action="store_true", help="the other tools, into build/peers")
    parser.add_argument("--quick", action="store_true", help="once each, to see that it works")
    args = parser.parse_args()
    if args.install:
        install()
    rounds = 1 if args.quick else ROUNDS
    program, fake = built()
    python = str(PEERS / "bin/python") if (PEERS / "bin/python").exists() else sys.executable
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        script, nvidia_smi = Path(directory) / "gpus", Path(directory) / "bin/nvidia-smi"
        script.write_text(SCRIPT)
        nvidia_smi.parent.mkdir()
        nvidia_smi.write_text(NVIDIA_SMI)
        nvidia_smi.chmod(0o755)
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "INNKEEPER_"))
        }
        env |= {
            "INNKEEPER_NVML": str(fake / "libnvidia-ml.so.1"),
            "INNKEEPER_FAKE_NVML": str(script),
            "INNKEEPER_LEASE_DIR": f"{directory}/leases",
            "LD_LIBRARY_PATH": str(fake),  # the other tools load the library by its name
            "PATH": f"{nvidia_smi.parent}:{os.environ.get('PATH', os.defpath)}",
        }
        if shutil.which("true") is None:
            sys.exit("there is no true(1)")
        table, missing = contenders(program, python)
        for _ in range(rounds):
            for row in table.values():
                row.run(env)
        beside = memory_beside(program, env)
    report(rounds, table, missing)
    print(f"run and its keeper, beside a command: {beside} KiB")


if __name__ == "__main__":
    main()
