"""Text of other users, or mistyped text, on the terminal: printed, never obeyed."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest
from innkeeper_program import Machine, gpus, wait_until
from processes import StartProgram

HOLDER = r"""
import ctypes, fcntl, sys, time
ctypes.CDLL(None).prctl(15, b"\x1b[2J\xe2\x80\xaeevil", 0, 0, 0)
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""


def assert_plain(text: str) -> None:
    """No character that a terminal obeys, or that reverses the order of displayed text."""
    bad = [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert not bad, repr(text)


def test_the_name_of_the_locks_holder(machine: Machine, start_program: StartProgram):
    machine.ok("lease", "list")
    machine.ok("run", "--mem", "1G", "--", "true")
    holder = start_program(
        sys.executable, "-c", HOLDER, machine.leases / "alloc.lock", stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    waiting = machine.start("pick", "--mem", "1G")
    doctor = machine.run("doctor")
    assert_plain(doctor.stdout + doctor.stderr)
    assert r"(\x1b[2J\u202eevil)" in doctor.stdout
    document = machine.run("doctor", "--json").stdout
    assert_plain(document)
    _, said = waiting.communicate(timeout=60)
    assert waiting.returncode != 0 and r"(\x1b[2J\u202eevil)" in said
    assert_plain(said)


@pytest.mark.parametrize(
    "words",
    [
        ["\033[2J"],
        ["pick", "\033[2J"],
        ["pick", "--\033[2J"],
        ["pick", "--mem", "1\u202e\033[2J"],
        ["pick", "-n", "\x9b2J"],
        ["run", "--", "/no/\033[2J\u202e\u202dprogram"],
        ["run", "--managed", "--python", "\033[2J", "x.py"],
        ["lease", "end", "\033[2J"],
        ["queue", "show", "\033[2J"],
        ["queue", "add", "--after", "\033[2J", "--", "true"],
        ["queue", "add", "--time", "\033[2J", "--", "true"],
    ],
)
@pytest.mark.usefixtures("runners")
def test_ones_own_words(machine: Machine, words: list[str]):
    done = machine.run(*words)
    assert done.returncode != 0
    assert_plain(done.stdout + done.stderr)


@pytest.mark.usefixtures("runners")
def test_letters_stay(machine: Machine):
    """Letters of every script stay, if the terminal has them, in columns of their width."""
    job = machine.start("run", "--mem", "1G", "--", "sh", "-c", "sleep 60; : größer 訓練 \u202e\033[2J")
    wait_until(lambda: len(machine.held()) == 1)
    machine.set(gpus(1, {0: f"  memory 139G 512M 1G\n  process {job.pid} 1G\n"}))
    for words in (["status"], ["lease", "list"]):
        text = machine.ok(*words)
        assert "größer 訓練 \\u202e\\x1b[2J" in text
        assert_plain(text)
        ascii = machine.ok(*words, env={"LANG": "C"})
        assert "gr\\xf6\\xdfer \\u8a13\\u7df4" in ascii and ascii.isascii()
    machine.ok("queue", "add", "--name", "größe 訓", "--", "true")
    assert "größe 訓" in machine.ok("queue", "list", "--all")
