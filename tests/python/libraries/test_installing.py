"""Building without a dependency: no part is left out in silence; a message names the package to install."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import RunProgram
from repository import ROOT

Configure = Callable[..., subprocess.CompletedProcess[str]]
NOTHING = (
    "-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON",
    "-DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON",
    "-DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON",
    "-DINNKEEPER_SQLITE_INCLUDE=INNKEEPER_SQLITE_INCLUDE-NOTFOUND",
    "-DCMAKE_FIND_ROOT_PATH=/nowhere",
    "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY",
)
CORE_ALONE = "-DINNKEEPER_TORCH=OFF"


@pytest.fixture
def configure(run_program: RunProgram, compiler: str, tmp_path: Path) -> Configure:
    """Configures a build in tmp_path/build, without Python's packages but PyTorch."""

    def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return run_program(
            "cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", *options,
            env={**os.environ, "CXX": compiler, **environment},
        )  # fmt: skip

    return run


def message(done: subprocess.CompletedProcess[str]) -> str:
    """CMake's text on standard error, without its line breaks."""
    assert done.returncode != 0
    return re.sub(r"\s+", " ", done.stderr)


def test_what_is_lacking_is_named_for_each_system(configure: Configure):
    done = configure(*NOTHING, CORE_ALONE, "-DINNKEEPER_FETCH=OFF")
    said = message(done)
    for library in ("SQLite", "CLI11", "fmt", "nlohmann-json"):
        assert f"{library}: not installed" in said
    assert "apt install libsqlite3-dev libcli11-dev libfmt-dev nlohmann-json3-dev" in said
    assert "dnf install sqlite-devel cli11-devel fmt-devel json-devel" in said
    assert "conda install -c conda-forge sqlite cli11 fmt nlohmann_json" in said
    # """Text to paste: a line of its own, which CMake leaves whole, for any pip."""
    assert "  pip install . --config-settings=cmake.define.INNKEEPER_CLI=OFF\n" in done.stderr


def test_the_device_alone_needs_none(configure: Configure):
    done = configure(*NOTHING, CORE_ALONE, "-DINNKEEPER_CLI=OFF", "-DINNKEEPER_FETCH=OFF")
    assert done.returncode == 0, done.stderr


def test_without_a_network_the_message_says_so(configure: Configure):
    names = ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY")
    refused = dict.fromkeys(names, "http://127.0.0.1:9")
    said = message(configure(*NOTHING, CORE_ALONE, **refused, no_proxy="", NO_PROXY=""))
    assert re.search(r"CLI11: not installed, and https://\S+/v2.3.2.tar.gz cannot be fetched \(.+?\)", said)
    assert "apt install libsqlite3-dev libcli11-dev" in said


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """Archives like the pinned ones, of this machine's headers; SQLite's is a stub."""
    directory = tmp_path / "archives"
    directory.mkdir()
    with tarfile.open(directory / "CLI11-2.3.2.tar.gz", "w:gz") as archive:
        archive.add("/usr/include/CLI", "CLI11-2.3.2/include/CLI")
    with zipfile.ZipFile(directory / "json-3.11.3.zip", "w") as archive:
        for file in Path("/usr/include/nlohmann").rglob("*.hpp"):
            archive.write(file, Path("include/nlohmann") / file.relative_to("/usr/include/nlohmann"))
    with zipfile.ZipFile(directory / "sqlite-amalgamation-3460100.zip", "w") as archive:
        archive.writestr("sqlite-amalgamation-3460100/sqlite3.h", "int sqlite3_threadsafe(void);\n")
        archive.writestr(
            "sqlite-amalgamation-3460100/sqlite3.c",
            "int sqlite3_threadsafe(void) { return SQLITE_THREADSAFE; }\n",
        )
    return directory


def checksums(directory: Path) -> list[str]:
    """The options that expect exactly these archives."""
    files = {
        "CLI11": "CLI11-2.3.2.tar.gz",
        "JSON": "json-3.11.3.zip",
        "SQLITE": "sqlite-amalgamation-3460100.zip",
    }
    return [
        f"-DINNKEEPER_{name}_SHA256={hashlib.sha256((directory / file).read_bytes()).hexdigest()}"
        for name, file in files.items()
    ]


def test_archives_take_the_place_of_packages(
    configure: Configure, run_program: RunProgram, archives: Path, tmp_path: Path
):
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "nlohmann_json.py").write_text("raise ImportError\n")
    options = (
        f"-DINNKEEPER_ARCHIVES={archives}",
        *checksums(archives),
        f"-DPython3_EXECUTABLE={sys.executable}",
    )
    done = configure(*NOTHING, *options, PYTHONPATH=str(hidden))
    assert done.returncode == 0, done.stderr
    build = tmp_path / "build"
    made = run_program("cmake", "--build", build, "--target", "innkeeper_sqlite")
    assert made.returncode == 0, made.stdout
    commands = json.loads((build / "compile_commands.json").read_text())
    (program,) = {each["command"] for each in commands if "unity_cli" in each["file"]} or {""}
    unpacked = [str(directory) for directory in (build / "_deps").glob("innkeeper_*-src")]
    assert len(unpacked) == 3
    for directory in unpacked:
        assert f"-isystem {directory}" in program
    assert re.search(r"-isystem \S+/torch/include ", program), "fmt's headers are PyTorch's"


def test_json_comes_from_python_s_package(configure: Configure, archives: Path, tmp_path: Path):
    package = tmp_path / "site" / "nlohmann_json"
    (package / "include").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "include" / "nlohmann").symlink_to("/usr/include/nlohmann")
    options = (
        f"-DINNKEEPER_ARCHIVES={archives}",
        *checksums(archives),
        f"-DPython3_EXECUTABLE={sys.executable}",
    )
    (archives / "json-3.11.3.zip").unlink()
    done = configure(*NOTHING, *options, PYTHONPATH=str(package.parent))
    assert done.returncode == 0, done.stderr


def test_an_archive_with_another_checksum_is_refused(configure: Configure, archives: Path):
    done = configure(*NOTHING, CORE_ALONE, f"-DINNKEEPER_ARCHIVES={archives}")
    said = message(done)
    assert (
        "77823cb110929c2bcb0f5d48e4833b5c59a8a6e40cdea3936b99e199dbbe5784" in said and "hash" in said.lower()
    )


@pytest.fixture
def cuda_python(run_python: RunProgram, tmp_path: Path) -> Path:
    """A Python whose PyTorch reports a build for CUDA without CUDA's headers."""
    facts = run_python(ROOT / "cmake" / "torch_facts.py").stdout
    directory = tmp_path / "torch"
    directory.mkdir()
    said = re.sub(r'(_CUDA_INCLUDE_DIRS ")[^"]*', r"\1", facts)
    said = re.sub(r'(_VERSION ")[^"]*', r"\g<1>2.13.0+cu130", said)
    said = re.sub(r'(TORCH_CUDA ")[^"]*', r"\g<1>13.0", said)
    (directory / "facts").write_text(said)
    python = directory / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$1" in *torch_facts.py) exec cat {directory}/facts;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    return python


def test_only_the_user_leaves_cuda_out(configure: Configure, cuda_python: Path):
    options = (f"-DPython3_EXECUTABLE={cuda_python}", "-DINNKEEPER_TORCH=ON", "-DINNKEEPER_CLI=OFF")
    done = configure(*options)
    said = message(done)
    assert "PyTorch 2.13.0+cu130 is built for CUDA 13.0, whose headers are not here" in said
    assert "'nvidia-cuda-runtime==13.0.*'" in said and "set CUDA_HOME" in said
    assert "  pip install . --config-settings=cmake.define.INNKEEPER_CUDA=OFF\n" in done.stderr
    done = configure(*options, "-DINNKEEPER_CUDA=OFF")
    assert done.returncode == 0, done.stderr


def test_without_a_compiler_one_line_says_what_to_install(configure: Configure):
    said = message(configure(CORE_ALONE, CXX="/no/such/compiler"))
    assert "innkeeper needs a C++20 compiler (apt install g++" in said


def test_an_old_compiler_is_refused_in_one_line(configure: Configure, compiler: str, tmp_path: Path):
    old = tmp_path / "old"
    old.write_text(f'#!/bin/sh\nexec {shutil.which(compiler)} "$@" -std=c++17\n')
    old.chmod(0o755)
    said = message(configure(CORE_ALONE, CXX=str(old)))
    assert f"innkeeper needs a C++20 compiler, as GCC 12 or Clang 14 and newer; {old} is" in said


@pytest.mark.parametrize("option", ["TORCH", "CLI", "CUDA", "FETCH"])
def test_an_option_is_on_or_off(configure: Configure, option: str):
    said = message(configure(CORE_ALONE, f"-DINNKEEPER_{option}=MAYBE"))
    expected = "ON or OFF, or AUTO" if option == "TORCH" else "ON or OFF"
    assert f"INNKEEPER_{option}=MAYBE: expected {expected}" in said


def test_small_letters_are_understood(configure: Configure):
    done = configure("-DINNKEEPER_TORCH=off", "-DINNKEEPER_CLI=off")
    assert done.returncode == 0 and "torch" not in done.stdout.lower(), done.stdout
