"""Importing the package: its registrations, its refusals, and forks."""

import os
from importlib.metadata import version

import innkeeper
from processes import RunProgram
from repository import ROOT


def test_registers_the_device_once(run_python: RunProgram):
    script = """
import importlib, sys
import torch, innkeeper
assert torch.managed is sys.modules["torch.managed"]
assert torch.accelerator.current_accelerator() == torch.device("managed")
x = torch.ones(2, device="managed")
assert x.is_managed and torch.ones(2).managed().is_managed and not torch.ones(2).is_managed
importlib.reload(innkeeper)
from innkeeper import _register
_register.register()
assert x.tolist() == [1.0, 1.0]
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_torch_alone_does_not_load_it(run_python: RunProgram):
    done = run_python(
        "-c", "import torch, sys; assert not hasattr(torch, 'managed') and 'innkeeper' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_its_version_is_that_of_the_package_and_of_the_program():
    assert innkeeper.__version__ == version("innkeeper")
    assert f'version = "{innkeeper.__version__}"' in (ROOT / "pyproject.toml").read_text().splitlines()


def test_importing_does_not_start_the_runtime(run_python: RunProgram):
    script = "import innkeeper; print(innkeeper.manager()); from innkeeper import _C; assert not _C.started()"
    done = run_python("-c", script)
    assert done.stdout == "<innkeeper.DeviceManager: not started>\n"
    assert done.returncode == 0, done.stderr


def test_refuses_another_out_of_tree_device_in_one_line(run_python: RunProgram):
    done = run_python("-c", "import torch; torch.utils.rename_privateuse1_backend('other'); import innkeeper")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: innkeeper cannot be loaded beside the device 'other'"
    )


LIBRARY = """
import ctypes, torch
from importlib.util import find_spec
from pathlib import Path
library = str(Path(find_spec("innkeeper").origin).parent / "libinnkeeper_torch.so")
"""


def test_a_library_that_is_loaded_and_closed_before_the_import_is_no_harm(run_python: RunProgram):
    script = """
import _ctypes
_ctypes.dlclose(ctypes.CDLL(library)._handle)
try:
    torch.ones(2, device="managed")
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("Python has the device without import innkeeper")
import innkeeper
assert torch.ones(2, device="managed").tolist() == [1, 1]
"""
    done = run_python("-c", LIBRARY + script)
    assert done.returncode == 0, done.stderr


def test_a_library_that_finds_the_slot_taken_leaves_it_alone(run_python: RunProgram):
    script = """
torch.utils.rename_privateuse1_backend("other")
ctypes.CDLL(library)
assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::empty.memory_format", "PrivateUse1")
"""
    done = run_python("-c", LIBRARY + script)
    assert done.returncode == 0, done.stderr


FORK = """
import os, torch, innkeeper
pid = os.fork()
if pid == 0:
    assert not torch.managed._is_in_bad_fork()
    torch.manual_seed(0)
    x = torch.randn(100, 100, device="managed")
    y = (x @ x).relu()
    torch.manual_seed(0)
    z = torch.randn(100, 100)
    ok = torch.equal(y.cpu(), (z @ z).relu())
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_child_forked_before_the_first_use_can_use_the_device(run_python: RunProgram):
    done = run_python("-c", FORK)
    assert done.returncode == 0, done.stderr


def test_this_process_is_no_bad_fork():
    import torch

    assert not torch.managed._is_in_bad_fork() and os.getpid() > 0


def test_dir_shows_the_public_names_alone():
    names = dir(innkeeper)
    assert names == sorted(innkeeper.__all__) and all(hasattr(innkeeper, name) for name in names)
    assert {"stats", "DeviceManager", "configure"} <= set(names)
    assert not {"sys", "Path", "launch", "integrations", "_mixed"} & set(names)
