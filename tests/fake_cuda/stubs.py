"""Makes the libraries that a CUDA build of PyTorch loads, of the fake runtime: stubs.py TORCH RUNTIME OUT.

RUNTIME is the static library of the runtime's folder. OUT then holds libcudart.so.13, to which libcuda.so.1
is a link: the fake, and for what PyTorch wants beyond it functions that say so and answer "not supported".
Every other library of NVIDIA's is a link to one of stubs that answer 1, nobody's success. All have the
symbol versions that PyTorch's libraries name: the loader insists on them.

Which names those are is read from PyTorch's libraries, so a newer PyTorch needs no change here.
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from pathlib import Path

CUDART = "libcudart.so.13"
OURS = (CUDART, "libcuda.so.1")  # what the runtime's file stands for
VENDOR = re.compile(r"lib(?:cu|nv|nccl)")
# Functions of libraries that give theirs no versions.
UNVERSIONED = re.compile(r"(?:cuFile|cusparseLt|nccl|curand|nvshmem)[A-Za-z_]")
VERSIONED = ("libcu", "libnv", "NVSHMEM")


def output(*command: str | Path) -> str:
    """What a command that must succeed prints."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def run(*command: str | Path) -> None:
    """Runs a command that must succeed."""
    subprocess.run(list(map(str, command)), check=True)


class Wanted:
    """What PyTorch's libraries ask of NVIDIA's."""

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
    script = out / f"{soname}.map"
    script.write_text(versions)
    run("g++", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}", "-o",
        out / soname, *inputs)  # fmt: skip


def c_file(path: Path, prologue: str, functions: list[str]) -> Path:
    """Writes a source and compiles it; the object."""
    path.write_text(prologue + "\n".join(functions) + "\n")
    run("gcc", "-O1", "-fPIC", "-c", path, "-o", path.with_suffix(".o"))
    return path.with_suffix(".o")


def make_runtime(out: Path, runtime: Path, wanted: set[str]) -> list[str]:
    """The fake's own library; the names that it does not have."""
    there = set(re.findall(r" [TW] (\w+)", output("nm", "--defined-only", runtime)))
    missing = sorted(wanted - there)
    rest = c_file(
        out / "cudart_rest.c",
        "#include <stdio.h>\n"
        "static int none(const char* name) {\n"
        '  fprintf(stderr, "fake_cuda: no %s here\\n", name);\n'
        "  return 801;\n}\n",
        [f'int {name}(void) {{ return none("{name}"); }}' for name in missing],
    )
    versions = f"{CUDART} {{ global: cuda*; __cuda*; cu*; fake_cuda_*; local: *; }};\n"
    shared(out, CUDART, versions, "-Wl,--whole-archive", runtime, "-Wl,--no-whole-archive", rest, "-ldl")
    return missing


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
    torch, runtime, out = map(Path, sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    wanted = Wanted(torch)
    runtime_symbols = wanted.symbols.pop(CUDART, set())
    missing = make_runtime(out, runtime, runtime_symbols)
    stubs = make_stubs(out, wanted.symbols)
    for name in sorted(wanted.libraries | set(OURS)):
        if name == CUDART:
            continue
        link = out / name
        link.unlink(missing_ok=True)
        link.symlink_to(CUDART if name in OURS else "libfake_stubs.so")
    print(f"{len(runtime_symbols) - len(missing)} of {len(runtime_symbols)} functions of the runtime,",
          f"{stubs} stubs for {len(wanted.libraries - set(OURS))} libraries")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
