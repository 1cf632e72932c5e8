"""A program that follows a managed tensor's data pointer gets advice; it ends as without Innkeeper."""

from __future__ import annotations

import signal

import pytest
from processes import RunProgram

READ = "import ctypes, torch, innkeeper\nx = torch.ones(1000, device='managed')\n"
LINE = "innkeeper: something read or wrote byte {} at the data pointer of a managed tensor"
CURE = "with innkeeper.resident(x, write=True) as real"


@pytest.mark.parametrize(
    ("code", "byte"),
    [
        ("ctypes.string_at(x.data_ptr(), 1)", 0),
        ("ctypes.string_at(x[100:].data_ptr(), 1)", 400),
        ("ctypes.memset(x.data_ptr() + 8, 0, 1)", 8),
    ],
    ids=["read", "view", "write"],
)
def test_a_stray_access_is_told(run_python: RunProgram, code: str, byte: int):
    done = run_python("-c", READ + code)
    assert done.returncode == -signal.SIGSEGV
    assert LINE.format(byte) in done.stderr and CURE in done.stderr
    assert done.stderr.count("innkeeper:") == 1


def test_one_in_the_memory_of_a_tensor_that_is_gone_is_told(run_python: RunProgram):
    done = run_python("-c", READ + "at = x.data_ptr()\ndel x\nctypes.string_at(at, 1)")
    assert done.returncode == -signal.SIGSEGV and "of a managed tensor that is gone" in done.stderr


@pytest.mark.parametrize("faulthandler", [(), ("-X", "faulthandler")], ids=["alone", "faulthandler"])
def test_other_traps_end_as_before(run_python: RunProgram, faulthandler: tuple[str, ...]):
    done = run_python(*faulthandler, "-c", READ + "ctypes.string_at(8, 1)")
    assert done.returncode == -signal.SIGSEGV and "innkeeper:" not in done.stderr
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == bool(faulthandler)
    done = run_python(*faulthandler, "-c", READ + "ctypes.string_at(x.data_ptr(), 1)")
    assert done.returncode == -signal.SIGSEGV and CURE in done.stderr
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == bool(faulthandler)


def test_a_signal_from_a_process_ends_as_before(run_python: RunProgram):
    done = run_python("-c", READ + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\nprint('lives')")
    assert done.returncode == -signal.SIGSEGV and done.stdout == "" and "innkeeper:" not in done.stderr


def test_a_handler_that_a_program_has_set_is_asked_after(run_python: RunProgram):
    """Python's handler notes the signal, and calls the program's own."""
    program = """
import os, signal, ctypes, torch, innkeeper
def mine(number, frame):
    os.write(1, b"asked\\n")
signal.signal(signal.SIGSEGV, mine)
x = torch.ones(1000, device="managed")
os.kill(os.getpid(), signal.SIGSEGV)
print("lives")
"""
    done = run_python("-c", program)
    assert done.returncode == 0 and done.stdout == "asked\nlives\n", done.stderr


def test_a_handler_that_is_to_be_called_once_is_called_once(run_python: RunProgram):
    program = """
import ctypes, os
libc = ctypes.CDLL(None)
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]
@ctypes.CFUNCTYPE(None, ctypes.c_int)
def once(number):
    os.write(1, b"called\\n")
RESETHAND = -0x80000000
action = Action(ctypes.cast(once, ctypes.c_void_p), (ctypes.c_ulong * 16)(), RESETHAND, None)
assert libc.sigaction(11, ctypes.byref(action), None) == 0
import torch, innkeeper
x = torch.ones(1000, device="managed")
ctypes.string_at(8, 1)
"""
    done = run_python("-c", program.replace("\\\\", "\\"), timeout=60)
    assert done.returncode == -signal.SIGSEGV and done.stdout == "called\n", done.stderr


def test_a_message_that_no_process_reads(run_python: RunProgram):
    program = """
import fcntl, os
read, write = os.pipe()
os.set_blocking(write, False)
try:
    while os.write(write, b"x" * 65536): pass
except BlockingIOError:
    os.set_blocking(write, True)
os.dup2(write, 2)
"""
    done = run_python("-c", program + READ + "ctypes.string_at(x.data_ptr(), 1)", timeout=60)
    assert done.returncode == -signal.SIGSEGV


def test_a_forked_child_is_told_too(run_python: RunProgram):
    program = READ + "import os\npid = os.fork()\nif pid == 0:\n    ctypes.string_at(x.data_ptr(), 1)\n"
    done = run_python("-c", program + "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
    assert done.stdout == f"{-signal.SIGSEGV}\n" and done.stderr.count(CURE) == 1
