"""The package's C++ face: somebody else's program finds it by CMake, links it and trains."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import innkeeper
import pytest

SOURCE = Path(__file__).resolve().parent.parent / "consumer"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
def test_a_program_finds_links_and_uses_the_package(tmp_path: Path):
    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    environment = {k: v for k, v in os.environ.items() if not k.startswith("INNKEEPER_")}
    run(
        "cmake",
        "-S",
        str(SOURCE),
        "-B",
        str(tmp_path),
        f"-DCMAKE_PREFIX_PATH={innkeeper.cmake_prefix_path}",
        f"-DINNKEEPER_TORCH_DIR={Path(__import__('torch').__file__).parent}",
    )
    run("cmake", "--build", str(tmp_path))
    assert run(str(tmp_path / "consumer")).splitlines() == [
        "equal 1 evictions 1 nodes 3",
        "born sim:1",
        "evicted host",
        "real cpu",
        "sum 32",
        'refused: pin: there is no node "sim:7"; the nodes are sim:0, sim:1, host',
    ]
