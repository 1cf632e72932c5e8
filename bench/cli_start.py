"""How long the program takes from its start to its end, beside other tools that show or pick GPUs.

``innkeeper pick`` and ``status`` run on the fake NVML of build/release with two cards; so do nvitop and
gpustat where they are installed for this Python. Of GPUtil the import alone is measured, which is less than
its work: it starts nvidia-smi, which the fake cannot replace. Each is started many times in turn; the median
is printed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = int(os.environ.get("ROUNDS", "21"))
SCRIPT = """driver 550.54.15
card GPU-1000aaaa-0000-0000-0000-000000000000
  bus 00000000:11:00.0
  name NVIDIA H200
  memory 139G 512M 3G
  utilization 35 10
  power 210 700
  temperature 41
card GPU-2000bbbb-0000-0000-0000-000000000000
  bus 00000000:21:00.0
  name NVIDIA H200
  memory 139G 512M 0
  utilization 0 0
  power 75 700
  temperature 30
"""


def build_folder() -> Path:
    """The first build that has the program and the fake library."""
    for name in ("release", "dev"):
        build = ROOT / "build" / name
        if (build / "src/cli/innkeeper").exists() and (build / "tests/fake_nvml/libnvidia-ml.so.1").exists():
            return build
    sys.exit("not built: cmake --preset release && cmake --build --preset release")


def contenders(program: Path) -> dict[str, list[str]]:
    """Name -> command."""
    python = sys.executable
    found = {
        "innkeeper pick": [str(program), "pick"],
        "innkeeper status": [str(program), "status"],
        "innkeeper status --json": [str(program), "status", "--json"],
        "python -c pass": [python, "-c", "pass"],
    }
    for name, module, words in (
        ("nvitop -1 (as status)", "nvitop", ["-m", "nvitop", "-1"]),
        ("nvisel (as pick)", "nvitop", ["-m", "nvitop.select"]),
        ("gpustat (as status)", "gpustat", ["-m", "gpustat"]),
        ("import GPUtil", "GPUtil", ["-c", "import GPUtil"]),
    ):
        if importlib.util.find_spec(module) is not None:
            found[name] = [python, *words]
    return found


def main() -> None:
    """Prints a table."""
    build = build_folder()
    fake = build / "tests/fake_nvml"
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        script = Path(folder) / "gpus"
        script.write_text(SCRIPT)
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "INNKEEPER_"))
        }
        env |= {
            "INNKEEPER_NVML": str(fake / "libnvidia-ml.so.1"),
            "INNKEEPER_FAKE_NVML": str(script),
            "INNKEEPER_LEASE_DIR": f"{folder}/leases",
            "LD_LIBRARY_PATH": str(fake),  # for the others, which load the library by its name
        }
        commands = contenders(build / "src/cli/innkeeper")
        times: dict[str, list[float]] = {name: [] for name in commands}
        failed = set()
        for _ in range(ROUNDS):
            for name, command in commands.items():
                begin = time.perf_counter()
                done = subprocess.run(command, env=env, capture_output=True, check=False)
                times[name].append(time.perf_counter() - begin)
                if done.returncode != 0:
                    failed.add(name)
    print(f"from start to end, {ROUNDS} times each in turn, {build.name} build, {os.cpu_count()} processors")
    width = max(map(len, times))
    for name, values in times.items():
        note = "  (ended with an error)" if name in failed else ""
        middle, best = statistics.median(values) * 1e3, min(values) * 1e3
        print(f"{name:{width}}  median {middle:7.1f} ms  best {best:7.1f} ms{note}")
    missing = [name for name in ("nvitop", "gpustat", "GPUtil") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}")
    if shutil.which("nvidia-smi") is None:
        print("no nvidia-smi here")


if __name__ == "__main__":
    main()
