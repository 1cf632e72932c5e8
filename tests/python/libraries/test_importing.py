"""Importing where it cannot work: one line states the reason and the remedy."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path

import innkeeper
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


def test_beside_a_pytorch_without_a_version(run_python: RunProgram):
    said = last_line(run_python, "import torch; torch.__version__ = None; import innkeeper")
    assert said.startswith("ImportError: innkeeper was built for PyTorch 2.") and "found None" in said


def copied(directory: Path) -> Path:
    """The installed package's files but for its extension, which is a link, in a directory of their own."""
    there = directory / "innkeeper"
    shutil.copytree(
        Path(innkeeper.__file__).parent, there, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    return there


def test_an_extension_for_another_python(run_python: RunProgram, tmp_path: Path):
    (copied(tmp_path) / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    said = last_line(run_python, f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import innkeeper")
    assert said.startswith(
        f"ImportError: innkeeper was built for another Python than {sys.executable}, which "
    )
    assert said.endswith("has _C.cpython-39-x86_64-linux-gnu.so. pip install it with this Python")


def test_a_source_that_is_not_built(run_python: RunProgram, tmp_path: Path):
    (copied(tmp_path) / "_built_for.py").unlink()
    said = last_line(run_python, f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import innkeeper")
    assert said.startswith(f"ImportError: {tmp_path / 'innkeeper'} is innkeeper's source, which is not built")


@pytest.mark.parametrize(
    "which",
    [
        "",
        "for_module=False",
        "for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True",
    ],
)
def test_beside_methods_of_its_own_name(run_python: RunProgram, which: str):
    code = f"""
    import torch
    torch.utils.rename_privateuse1_backend("managed")
    torch.utils.generate_methods_for_privateuse1_backend({which})
    import innkeeper
    module = torch.nn.Linear(1, 1).managed()
    storage = torch.ones(1).untyped_storage()
    print(torch.ones(2).managed().is_managed, module.weight.is_managed, storage.is_managed)
    """
    assert run_python("-c", textwrap.dedent(code)).stdout == "True True False\n"


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
    run_python: RunProgram, directory: Path, *words: str, nodes: str = "auto", **settings: str
) -> list[str]:
    script = directory / "script.py"
    script.write_text(NO_GPU)
    done = run_python(*words, script, nodes=nodes, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0\n2.0\n"
    return [line for line in done.stderr.splitlines() if "no GPU" in line]


def test_a_program_made_for_cuda_is_told_that_there_is_no_gpu(run_python: RunProgram, tmp_path: Path):
    """The first of its processes reports it once, and none does if the nodes are named."""
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
    """A launcher that uses no GPU itself, and processes that it starts one after another and concurrently."""
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


def test_a_thread_that_pins_memory_takes_no_threads_from_kernels(
    run_python: RunProgram, monkeypatch: pytest.MonkeyPatch
):
    """A DataLoader's sets ``torch.set_num_threads(1)``, and CPU kernels of fewer threads round otherwise."""
    for name, value in {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "MKL_DYNAMIC": "FALSE"}.items():
        monkeypatch.setenv(name, value)
    code = """
    import threading, torch, innkeeper
    pins = threading.Thread(target=torch.set_num_threads, args=(1,))
    pins.start()
    pins.join()
    print(torch.get_num_threads())
    """
    assert run_python("-c", textwrap.dedent(code)).stdout == "2\n"


@pytest.mark.parametrize("managed", [False, True])
def test_a_wrong_switch_is_refused_at_the_import(
    run_python: RunProgram, monkeypatch: pytest.MonkeyPatch, managed: bool
):
    monkeypatch.setenv("INNKEEPER_LIBRARIES", "x")
    words = ["-m", "innkeeper"] if managed else []
    done = run_python(*words, "-c", "import torch" if managed else "import innkeeper")
    lines = done.stderr.splitlines()
    assert lines[-1] == 'ValueError: INNKEEPER_LIBRARIES: "x": expected on or off' and len(lines) < 30
