"""CuPy and Numba are not installed: modules of their names, which take their arrays, stand in."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import RunProgram

MODULES = {
    "cupy/_creation.py": """
def asarray(a, dtype=None):
    return a
def from_dlpack(array):
    return array
""",
    "cupy/__init__.py": "from cupy._creation import asarray, from_dlpack\n",
    "numba/__init__.py": "",
    "numba/cuda/__init__.py": "from numba.cuda.api import as_cuda_array, to_device\n",
    "numba/cuda/api.py": """
def as_cuda_array(obj, sync=True):
    return obj
def to_device(obj, stream=0):
    return obj
""",
}
PROGRAM = """
import sys
sys.path.insert(0, {directory!r})
{imports}
x, plain = torch.ones(2, 3, device="managed"), torch.ones(2)
for call in (cupy.asarray, cupy._creation.from_dlpack, numba.cuda.as_cuda_array, numba.cuda.api.to_device):
    assert call(plain) is plain and call(None) is None
    try:
        print(call.__name__, call(x) is x)
    except TypeError as error:
        print(error)
with innkeeper.resident(x) as real:
    assert cupy.asarray(a=real) is real
"""


def said(run_python: RunProgram, tmp_path: Path, imports: str, **settings: str) -> list[str]:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    script = tmp_path / "script.py"
    script.write_text(PROGRAM.format(directory=str(tmp_path), imports=imports))
    done = run_python(str(script), nodes="host:1GiB", **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "imports", ["import torch, innkeeper, cupy, numba.cuda", "import cupy, numba.cuda, torch, innkeeper"]
)
def test_a_managed_tensor_as_argument_names_what_has_its_memory(
    run_python: RunProgram, tmp_path: Path, imports: str
):
    lines = said(run_python, tmp_path, imports)
    names = ["asarray", "from_dlpack", "as_cuda_array", "to_device"]
    assert [line.partition(" ")[0] for line in lines] == names
    for line in lines:
        assert "a managed tensor of (2, 3), torch.float32" in line
        assert "innkeeper.resident" in line


def test_off_they_are_left_alone(run_python: RunProgram, tmp_path: Path):
    lines = said(run_python, tmp_path, "import torch, innkeeper, cupy, numba.cuda", INNKEEPER_LIBRARIES="off")
    assert lines == ["asarray True", "from_dlpack True", "as_cuda_array True", "to_device True"]
