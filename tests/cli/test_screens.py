"""The screens in docs/ are those of the program: tools/screens.sh makes them again, and they are compared."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from pathlib import Path

import pytest
from innkeeper_program import PROGRAM, Command
from repository import ROOT

SCREENS = ROOT / "docs" / "screens"


def constant(text: str) -> list[str]:
    """The lines without text that differs from run to run: ids, process numbers, ages, plots, widths."""
    text = text.replace(getpass.getuser(), "USER").replace("root", "USER")
    text = re.sub(r"\b[0-9a-f]{16}\b", "ID", text)
    text = re.sub(r"^(\d +)\d+( +[\d.]+ GiB  USER)", r"\1PID\2", text, flags=re.MULTILINE)  # processes
    text = re.sub(r"(USER +)\d+( +\d+ s)", r"\1PID\2", text)  # leases
    text = re.sub(r"^ *\d+( +cuda:0)", r"PID\1", text, flags=re.MULTILINE)  # engines
    text = re.sub(r"\bpid \d+", "pid PID", text)  # Process numbers in doctor's text.
    text = re.sub(r"\b\d+ (s|ms|min)\b", "TIME", text)
    text = re.sub(r"(mem|util) [ \u2581-\u2588]*", r"\1 PLOT", text)
    text = re.sub(r"GPU-[0-9a-f-]+", "UUID", text)  # UUIDs, cut off to the column's width; in commands too.
    text = re.sub(r"(python [tfn]|innkeeper run).*$", r"\1", text, flags=re.MULTILINE)
    # For a user other than root the directory is not root's: removes the remarks, which a terminal may have
    # wrapped.
    for remark in (r"^hint +directory-owner .*?\n +cure:.*?\n", r"^leases protect .*?innkeeper\s+setup\n"):
        text = re.sub(remark, "", text, flags=re.MULTILINE | re.DOTALL)
    # Lines about the kernel's setting and about the machine that runs the test.
    lines = [line for line in text.splitlines() if not re.match(r"\w+ +(protected-regular|container) ", line)]
    return [re.sub(r" +", " ", line) for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_the_screens_in_the_documents_are_the_programs(command: Command, tmp_path: Path):
    env = os.environ | {"BUILD": str(PROGRAM.parents[2])}
    made = command(ROOT / "tools/screens.sh", tmp_path, env=env)
    assert made.returncode == 0, made.stderr
    names = sorted(file.name for file in SCREENS.iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == names and len(names) >= 4
    for name in names:
        fresh, kept = (tmp_path / name).read_text(), (SCREENS / name).read_text()
        assert constant(fresh) == constant(kept), f"{name}: tools/screens.sh makes docs/screens again"


def test_the_document_shows_them_as_they_are():
    text = (ROOT / "docs" / "program.md").read_text()
    shown = dict(re.findall(r"<!-- screens/(\S+) -->\n```text\n(.*?)```", text, re.DOTALL))
    assert sorted(shown) == sorted(file.name for file in SCREENS.iterdir())
    for name, screen in shown.items():
        assert screen == (SCREENS / name).read_text(), name
