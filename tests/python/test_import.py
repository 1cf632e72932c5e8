"""Importing the package: what it registers, what it refuses, and forks."""

import os

from conftest import run_python


def test_registers_the_device_once():
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


def test_torch_alone_does_not_load_it():
    done = run_python(
        "-c", "import torch, sys; assert not hasattr(torch, 'managed') and 'innkeeper' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_importing_does_not_start_the_runtime():
    done = run_python("-c", "import innkeeper; from innkeeper import _C; assert not _C.started()")
    assert done.returncode == 0, done.stderr


def test_refuses_another_out_of_tree_device_in_one_line():
    done = run_python("-c", "import torch; torch.utils.rename_privateuse1_backend('other'); import innkeeper")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: innkeeper cannot be loaded beside the device 'other'"
    )


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


def test_a_child_forked_before_the_first_use_can_use_the_device():
    done = run_python("-c", FORK)
    assert done.returncode == 0, done.stderr


def test_this_process_is_no_bad_fork():
    import torch

    assert not torch.managed._is_in_bad_fork() and os.getpid() > 0
