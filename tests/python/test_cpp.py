"""The package's C++ face: somebody else's programs find it by CMake, link it, train and choose GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import innkeeper
import pytest
from fake_machine import A, FakeMachine

import torch

SOURCE = Path(__file__).resolve().parent.parent / "consumer"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
def test_a_program_finds_links_and_uses_the_package(machine: FakeMachine, tmp_path: Path):
    def run(*command: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=env or environment, check=False)
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
        f"-DINNKEEPER_TORCH_DIR={Path(torch.__file__).parent}",
        "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--as-needed",  # many compilers' default; by_name needs nothing of ours
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
    # The first thing that touches the device is a module; memory is less than a step needs.
    small = environment | {"INNKEEPER_NODES": "sim:1x128KiB,host:1GiB"}
    assert run(str(tmp_path / "train"), env=small) == "9 tensors equal\n"
    assert run(str(tmp_path / "by_name"), env=small) == "managed:0 holds 2\n"
    choose = str(tmp_path / "choose")
    assert run(choose, env=machine.environment()) == f"cuda:0 is {A}\n"
    held = (
        "import innkeeper, subprocess, sys; a = innkeeper.lease(memory=35 << 30); subprocess.run(sys.argv[1])"
    )
    busy = run(sys.executable, "-c", held, choose, env=machine.environment(CUDA_VISIBLE_DEVICES=A))
    assert busy.startswith("later: asked for 1 GPU with 8.0 GiB, 0 have that now"), busy
