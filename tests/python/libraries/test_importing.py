"""Importing where it cannot work: one line says why, and what to do."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from processes import RunProgram


def last_line(run_python: RunProgram, code: str) -> str:
    """The error with which a program ends."""
    done = run_python("-c", textwrap.dedent(code))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "terminate called" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_beside_another_series_of_pytorch(run_python: RunProgram):
    said = last_line(run_python, "import torch; torch.__version__ = '2.99.1+cu130'; import innkeeper")
    assert said.startswith("ImportError: innkeeper was built for PyTorch 2.")
    assert "found 2.99.1+cu130" in said and "pip install torch==2." in said


@pytest.mark.parametrize("version", [".77", "+cpu", ".0a0+git1234", "a0"])
def test_another_release_of_the_series_is_the_same_to_it(run_python: RunProgram, version: str):
    code = """
    import torch
    series = ".".join(torch.__version__.split(".")[:2])
    torch.__version__ = series + VERSION
    import innkeeper
    print(torch.ones(2, device="managed").sum().item())
    """
    code = textwrap.dedent(code).replace("VERSION", repr(version))
    assert run_python("-c", code).stdout == "2.0\n"


def test_without_pytorch(run_python: RunProgram):
    code = """
    import sys
    class Hides:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise ModuleNotFoundError("No module named 'torch'", name="torch")
    sys.meta_path.insert(0, Hides())
    import innkeeper
    """
    said = last_line(run_python, code)
    assert said.startswith("ImportError: innkeeper needs PyTorch 2.") and "pip install torch==2." in said


def test_with_an_old_python(run_python: RunProgram):
    said = last_line(run_python, "import sys; sys.version_info = (3, 9, 18); import innkeeper")
    assert said.startswith("ImportError: innkeeper needs Python 3.10 or newer; ")


@pytest.mark.parametrize(
    "other",
    [
        "torch.utils.rename_privateuse1_backend('npu')",
        "torch._C._acc.register_python_privateuseone_hook(torch._C._acc.PrivateUse1Hooks())",
    ],
)
def test_beside_another_device_of_its_kind(run_python: RunProgram, other: str):
    said = last_line(run_python, f"import torch; {other}; import innkeeper")
    assert said.startswith("ImportError: innkeeper cannot be loaded beside ")
    assert said.endswith("slot for out-of-tree devices") or said.endswith("slot for such devices")


def test_another_device_that_comes_later_is_refused_by_pytorch(run_python: RunProgram):
    said = last_line(run_python, "import innkeeper, torch; torch.utils.rename_privateuse1_backend('npu')")
    assert "RuntimeError" in said and "already been set! Current backend: managed" in said


NO_GPU = """
import os, subprocess, sys, torch
print(torch.ones(2, device="cuda").sum().item(), flush=True)
if sys.argv[1:] != ["child"]:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def told(
    run_python: RunProgram, folder: Path, *words: str, nodes: str = "auto", **settings: str
) -> list[str]:
    script = folder / "script.py"
    script.write_text(NO_GPU)
    done = run_python(*words, script, nodes=nodes, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n2.0\n"
    return [line for line in done.stderr.splitlines() if "no GPU" in line]


def test_a_program_made_for_cuda_is_told_that_there_is_no_gpu(run_python: RunProgram, tmp_path: Path):
    """Once, by the first of its processes, and not where the nodes are named."""
    (line,) = told(run_python, tmp_path, "-m", "innkeeper")
    assert re.fullmatch(
        r"innkeeper warn: no GPU: cuda is simulated on the CPU with [\d.]+ [MGT]iB of host memory "
        r"\(INNKEEPER_NODES names other nodes\)",
        line,
    )
    assert told(run_python, tmp_path, "-m", "innkeeper", INNKEEPER_LOG="error") == []
    assert told(run_python, tmp_path, "-m", "innkeeper", nodes="sim:1x8MiB,host:1GiB") == []
    assert told(run_python, tmp_path, "-m", "innkeeper", nodes="host:1GiB") == []


def test_whichever_process_comes_first_tells_it(run_python: RunProgram, tmp_path: Path):
    """A launcher that uses no GPU itself, and what it starts one after another and side by side."""
    script = tmp_path / "launcher.py"
    script.write_text("""
import multiprocessing, os, subprocess, sys
USE = "import torch; torch.ones(2, device='cuda')"
def use():
    exec(USE)
if __name__ == "__main__":
    for _ in range(2):
        subprocess.run([sys.executable, "-c", USE], check=True)
    side_by_side = [subprocess.Popen([sys.executable, "-c", USE]) for _ in range(2)]
    assert [process.wait() for process in side_by_side] == [0, 0]
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=use)
        process.start()
        process.join()
        assert process.exitcode == 0
""")
    done = run_python("-m", "innkeeper", script, nodes="auto")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no GPU: cuda is simulated") == 1, done.stderr
