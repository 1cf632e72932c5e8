"""Makes the libraries that a CUDA build of PyTorch loads, of the fakes: stubs.py TORCH RUNTIME NCCL OUT.

RUNTIME and NCCL are the static libraries of those directories. OUT then holds libcudart.so.13, to which
libcuda.so.1 is a link: the fake, and stubs of all other functions that PyTorch needs, which print a line and
answer "not supported"; and the same for libnccl.so.2. libnvidia-ml.so.1, which PyTorch opens itself, knows
the number of GPUs and nothing else. Every other library of NVIDIA's is a link to one of stubs that answer 1,
an error in all of them. All have the symbol versions that PyTorch's libraries name: the loader insists on
them.

Which names those are is read from PyTorch's libraries, so a newer PyTorch needs no change here.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from pathlib import Path

CUDART = "libcudart.so.13"
NCCL = "libnccl.so.2"
OURS = (CUDART, "libcuda.so.1")  # Libraries that the runtime's file stands for.
VENDOR = re.compile(r"lib(?:cu|nv|nccl)")
# Functions of libraries that give theirs no versions.
UNVERSIONED = re.compile(r"(?:cuFile|cusparseLt|nccl|curand|nvshmem)[A-Za-z_]")
VERSIONED = ("libcu", "libnv", "NVSHMEM")


def output(*command: str | Path) -> str:
    """Output of a command that must succeed."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def run(*command: str | Path) -> None:
    """Runs a command that must succeed."""
    subprocess.run(list(map(str, command)), check=True)


class Wanted:
    """Libraries and symbols of NVIDIA's that PyTorch's libraries need."""

    def __init__(self, torch: Path) -> None:
        libraries = sorted((torch / "lib").glob("*.so")) + sorted(torch.glob("_C*.so"))
        self.libraries: set[str] = set()
        self.symbols: dict[str, set[str]] = collections.defaultdict(set)  # version -> names
        for library in libraries:
            needed = re.findall(r"\(NEEDED\).*\[([^\]]*)\]", output("readelf", "-d", library))
            self.libraries |= set(filter(VENDOR.match, needed))
            for name in output("nm", "-D", "--undefined-only", library).split():
                symbol, _, version = name.partition("@")
                if version.startswith(VERSIONED):
                    self.symbols[version.lstrip("@")].add(symbol)
                elif UNVERSIONED.match(symbol):
                    self.symbols[""].add(symbol)
        self.libraries -= {library.name for library in libraries}


def shared(out: Path, soname: str, versions: str, *inputs: str | Path) -> None:
    """Links a shared library with a version script."""
    (out / soname).unlink(missing_ok=True)  # The file may be a link.
    script = out / f"{soname}.map"
    script.write_text(versions)
    run("g++", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}", "-o",
        out / soname, *inputs)  # fmt: skip


def c_file(path: Path, prologue: str, functions: list[str]) -> Path:
    """Writes a source and compiles it; the object."""
    path.write_text(prologue + "\n".join(functions) + "\n")
    run("gcc", "-O1", "-fPIC", "-c", path, "-o", path.with_suffix(".o"))
    return path.with_suffix(".o")


def rest_of(out: Path, name: str, archive: Path, wanted: set[str], answer: int) -> tuple[list[str], Path]:
    """The names that a fake does not have, and functions for them that say so."""
    there = set(re.findall(r" [TW] (\w+)", output("nm", "--defined-only", archive)))
    missing = sorted(wanted - there)
    rest = c_file(
        out / f"{name}_rest.c",
        "#include <stdio.h>\n"
        "static int none(const char* name) {\n"
        '  fprintf(stderr, "fake_cuda: no %s here\\n", name);\n'
        f"  return {answer};\n}}\n",
        [f'int {missed}(void) {{ return none("{missed}"); }}' for missed in missing],
    )
    return missing, rest


def make_runtime(out: Path, runtime: Path, wanted: set[str]) -> list[str]:
    """The fake's own library; the names that it does not have."""
    missing, rest = rest_of(out, "cudart", runtime, wanted, 801)
    versions = f"{CUDART} {{ global: cuda*; __cuda*; cu*; fake_cuda_*; local: *; }};\n"
    shared(out, CUDART, versions, "-Wl,--whole-archive", runtime, "-Wl,--no-whole-archive", rest, "-ldl")
    return missing


def make_nccl(out: Path, nccl: Path, wanted: set[str]) -> None:
    """NCCL's, which orders the runtime about."""
    _, rest = rest_of(out, "nccl", nccl, wanted, 4)
    whole = ("-Wl,--whole-archive", nccl, "-Wl,--no-whole-archive")
    shared(out, NCCL, "{ global: nccl*; local: *; };\n", *whole, rest, out / CUDART)


def make_nvml(out: Path) -> None:
    """NVIDIA's management library. Since 2.15 PyTorch takes its handles for granted when segments grow, and
    before that a list of processes where memory ran out.
    """
    nothing = (
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlSystemGetCudaDriverVersion_v2",
    )
    functions = c_file(
        out / "nvml.c",
        "int nvmlInit_v2(void) { return 0; }\n"
        "int nvmlDeviceGetHandleByPciBusId_v2(char* id, void** gpu) { *gpu = id; return 0; }\n"
        "int nvmlDeviceGetComputeRunningProcesses(void* gpu, unsigned* count, void* processes) {\n"
        "  (void)gpu, (void)processes;\n  *count = 0;\n  return 0;\n}\n",
        [f"int {name}(void) {{ return 3; }}" for name in nothing],  # not supported
    )
    shared(out, "libnvidia-ml.so.1", "{ global: nvml*; local: *; };\n", functions)


def make_stubs(out: Path, symbols: dict[str, set[str]]) -> int:
    """The library of stubs; how many."""
    names = sorted(set().union(*symbols.values()))
    stubs = c_file(
        out / "stubs.c",
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "static int stub(const char* name) {\n"
        '  if (getenv("FAKE_CUDA_TRACE")) fprintf(stderr, "fake_cuda: stub %s\\n", name);\n'
        "  return 1;\n}\n",
        [f'int {name}(void) {{ return stub("{name}"); }}' for name in names],
    )
    blocks = [
        f"{version or 'PLAIN'} {{ global: {' '.join(f'{name};' for name in sorted(of))} }};"
        for version, of in sorted(symbols.items())
    ]
    shared(out, "libfake_stubs.so", "\n".join([*blocks, "REST { local: *; };"]) + "\n", stubs)
    return len(names)


def main() -> int:
    torch, runtime, nccl, out = map(Path, sys.argv[1:5])
    out.mkdir(parents=True, exist_ok=True)
    wanted = Wanted(torch)
    runtime_symbols = wanted.symbols.pop(CUDART, set())
    missing = make_runtime(out, runtime, runtime_symbols)
    of_nccl = {name for name in wanted.symbols[""] if name.startswith("nccl")}
    wanted.symbols[""] -= of_nccl
    make_nccl(out, nccl, of_nccl)
    make_nvml(out)
    stubs = make_stubs(out, wanted.symbols)
    for name in sorted(wanted.libraries | set(OURS)):
        if name in (CUDART, NCCL):
            continue
        link = out / name
        link.unlink(missing_ok=True)
        link.symlink_to(CUDART if name in OURS else "libfake_stubs.so")
    print(f"{len(runtime_symbols) - len(missing)} of {len(runtime_symbols)} functions of the runtime,",
          f"{stubs} stubs for {len(wanted.libraries - {*OURS, NCCL})} libraries")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
