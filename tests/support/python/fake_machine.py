"""A machine with GPUs for programs in processes of their own, by tests/fake_nvml and tests/fake_amdsmi."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from processes import RunProgram
from repository import ROOT

FAKES = ROOT / "tests" / "fake_nvml"
FAKE_AMD = ROOT / "tests" / "fake_amdsmi"
A, B, C = (f"GPU-{letter * 8}-0000-4000-8000-00000000000{letter}" for letter in "abc")
SCRIPT = f"""
gpu {A}
  bus 00000000:01:00.0
  name Fake
  memory 80G 0 40G
  utilization 50 0
  power 100 400
gpu {B}
  bus 00000000:02:00.0
  name Fake
  memory 24G 0 0
  utilization 90 0
  power 200 400
gpu {C}
  bus 00000000:03:00.0
  name Fake
  memory 32G 0 1G
  utilization 0 0
  power 300 400
"""
"""Most free memory on A, the largest free part on B, least power on A, least utilization on C."""


def build_fakes(directory: Path, compiler: str, run_program: RunProgram) -> None:
    """Compiles the libraries into a directory: some seconds, and no build tree needs to be there."""
    shared = (FAKES / "call.cc", FAKES / "script.cc")
    for file, sources in {
        "libnvidia-ml.so.1": (FAKES / "fake_nvml.cc", *shared),
        "libcuda.so.1": (FAKES / "fake_cuda.cc",),
        "libamd_smi.so": (FAKE_AMD / "fake_amdsmi.cc", *shared),
    }.items():
        done = run_program(
            *(compiler, "-std=c++20", "-shared", "-fPIC", f"-I{ROOT}/src", f"-I{ROOT}/tests"),
            *(f"-Wl,-soname,{file}", "-o", directory / file),
            *sources,
        )
        assert done.returncode == 0, done.stderr


@dataclass
class FakeMachine:
    """Its libraries, and the directory of its script and leases."""

    libraries: Path
    directory: Path
    run_program: RunProgram

    def environment(self, **more: str) -> dict[str, str]:
        script = self.directory / "script"
        if not script.exists():
            script.write_text(SCRIPT)
        given = os.environ | {
            "INNKEEPER_NVML": str(self.libraries / "libnvidia-ml.so.1"),
            "INNKEEPER_FAKE_NVML": str(script),
            "INNKEEPER_FAKE_CUDA": f"{C},{B},{A}",  # CUDA's order is not NVML's.
            "FAKE_CUDA": str(self.libraries / "libcuda.so.1"),
            "INNKEEPER_LEASE_DIR": str(self.directory / "leases"),
            "INNKEEPER_NODES": "host:64MiB",
        }
        for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "INNKEEPER_LEASE", "INNKEEPER_LEASE_FD"):
            given.pop(name, None)
        return given | more

    def amd(self) -> dict[str, str]:
        """Variables that add a GPU of AMD's with more memory than the others have: GPU-dddddddddddddddd."""
        script = self.directory / "amd"
        script.write_text("gpu dddddddddddddddd\n  bus 0000:04:00.0\n  memory 192G 0 0\n")
        library = self.libraries / "libamd_smi.so"
        return {"INNKEEPER_AMDSMI": str(library), "INNKEEPER_FAKE_AMDSMI": str(script)}

    def fail_free(self, program: str, **environment: str) -> CompletedProcess[str]:
        """Runs a Python program, which must succeed."""
        done = self.run_program(sys.executable, "-c", program, env=self.environment(**environment))
        assert done.returncode == 0, done.stderr
        return done

    def run(self, program: str, **environment: str) -> list[str]:
        """Runs a Python program, in which A, B and C are the GPUs; gives the lines that it prints."""
        head = f"import os, sys, innkeeper\nA, B, C = {A!r}, {B!r}, {C!r}\n"
        return self.fail_free(head + program, **environment).stdout.splitlines()


@pytest.fixture(scope="session")
def libraries(compiler: str, run_program: RunProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fakes, compiled once."""
    directory = tmp_path_factory.mktemp("fakes")
    build_fakes(directory, compiler, run_program)
    return directory


@pytest.fixture
def machine(libraries: Path, run_program: RunProgram, tmp_path: Path) -> FakeMachine:
    """A machine of each test's own."""
    return FakeMachine(libraries, tmp_path, run_program)
