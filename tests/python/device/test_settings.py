"""Bad settings: each gives one clear line and a non-zero exit status."""

from __future__ import annotations

import re

import pytest
from processes import RunProgram
from repository import ROOT

SETTINGS = ROOT / "docs" / "settings.md"
USE = "import torch, innkeeper; torch.ones(1, device='managed')"
CONFIGURED_TWICE = """
import innkeeper
innkeeper.configure("host:64MiB")
innkeeper.configure("host:128MiB")
"""
TRY_ALL = """
import sys, innkeeper
for nodes in sys.argv[1:]:
    try:
        innkeeper.configure(nodes)
    except ValueError as error:
        print(error)
    else:
        sys.exit(f"{nodes} was accepted")
"""

# The setting, and the words that the message must contain.
BAD = {
    "unknown node": ("gpu:64MiB", "gpu"),
    "budget of 0": ("sim:1x0MiB,host:1GiB", "0"),
    "no such disk path": ("host:1GiB,disk:/nowhere/at/all:1GiB", "/nowhere/at/all"),
    "more simulated bytes than the machine has": ("sim:4x100000GiB,host:1GiB", "GiB"),
    "no size": ("sim:2x,host:1GiB", "sim"),
    "no unit": ("host:12XB", "12XB"),
    "no such GPU": ("cuda:99,host:1GiB", "cuda"),
    "empty part": ("host:1GiB,,", "host"),
}


@pytest.mark.parametrize("case", list(BAD)[:4])
def test_a_bad_environment_gives_one_clear_line(run_python: RunProgram, case: str):
    nodes, named = BAD[case]
    done = run_python("-c", USE, nodes=nodes)
    assert done.returncode != 0
    *above, last = done.stderr.strip().splitlines()
    assert last.startswith("ValueError: "), done.stderr
    assert named in last and len(last) < 300
    # The rest is Python's own traceback: nothing of the message is above the last line.
    assert above[0].startswith("Traceback") and not any("Error" in line for line in above), done.stderr


def test_configure_refuses_each_in_one_clear_line(run_python: RunProgram):
    done = run_python("-c", TRY_ALL, *(nodes for nodes, _ in BAD.values()))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(BAD), done.stdout
    for line, (_, named) in zip(lines, BAD.values(), strict=True):
        assert named in line and len(line) < 300


def test_the_environment_and_configure_agree(run_python: RunProgram):
    script = """
import innkeeper
innkeeper.configure("sim:3x2MiB,host:64MiB")
m = innkeeper.manager()
assert list(m.nodes) == ["sim:0", "sim:1", "sim:2", "host"], list(m.nodes)
assert m.budget("sim:1") == 2 << 20 and m.budget("host") == 64 << 20
"""
    done = run_python("-c", script, nodes="sim:1x1MiB,host:16MiB")
    assert done.returncode == 0, done.stderr
    script = "import innkeeper; assert list(innkeeper.manager().nodes) == ['sim:0', 'host']"
    done = run_python("-c", script, nodes="sim:1x1MiB,host:16MiB")
    assert done.returncode == 0, done.stderr


def test_configure_is_refused_while_memory_is_managed(run_python: RunProgram):
    script = """
import torch, innkeeper
x = torch.ones(10, device="managed")
try:
    innkeeper.configure("host:64MiB")
except (RuntimeError, ValueError) as error:
    assert "\\n" not in str(error), error
else:
    raise SystemExit("configure was not refused")
assert x.sum().item() == 10
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr


def test_growth_comes_from_the_environment_or_from_configure(
    run_python: RunProgram, monkeypatch: pytest.MonkeyPatch
):
    program = """
import torch, innkeeper
from innkeeper import _C
print(_C.growth())
innkeeper.configure("sim:1MiB,host:64MiB", growth=True)  # simulated GPUs have nobody to share with
print(_C.growth(), torch.ones(4, device="managed").sum().item())
try:
    innkeeper.configure("sim:0MiB", growth=False)
except ValueError:
    print(_C.growth())
"""
    monkeypatch.setenv("INNKEEPER_GROWTH", "off")
    done = run_python("-c", program)
    assert done.stdout.split() == ["False", "True", "4.0", "True"], done.stderr
    monkeypatch.setenv("INNKEEPER_GROWTH", "maybe")
    done = run_python("-c", USE)
    assert done.stderr.strip().splitlines()[-1] == 'ValueError: INNKEEPER_GROWTH: "maybe": expected on or off'


def test_a_setting_that_is_almost_right_is_named(run_python: RunProgram, monkeypatch: pytest.MonkeyPatch):
    """Warns once. Cases: each heading of the page, a known setting, with its last letter removed."""
    names = re.findall(r"INNKEEPER_\w+", " ".join(re.findall(r"^## .*", SETTINGS.read_text(), re.MULTILINE)))
    assert len(names) > 8
    for name in names:
        monkeypatch.setenv(name[:-1], "1")
    said = run_python("-c", CONFIGURED_TWICE).stderr
    for name in names:
        assert f"innkeeper warn: {name[:-1]} is set, and no setting: {name} is one\n" in said
    assert said.count("no setting") == len(names)
