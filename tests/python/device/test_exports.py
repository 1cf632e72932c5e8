"""The shared libraries of the package export what src/torch/exports.txt and src/bindings/exports.txt list."""

from __future__ import annotations

import re
from pathlib import Path

import innkeeper
import pytest
from innkeeper import _C
from processes import RunProgram
from repository import ROOT

PACKAGE = Path(innkeeper.__file__).parent
LISTS = {
    PACKAGE / "libinnkeeper_torch.so": ROOT / "src" / "torch" / "exports.txt",
    Path(_C.__file__): ROOT / "src" / "bindings" / "exports.txt",
}
PARTS_OF_TYPE = ("typeinfo for ", "typeinfo name for ", "vtable for ")


def listed(path: Path) -> set[str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(set(lines)), "a name stands twice"
    return {line.removeprefix("c ") for line in lines}


def named(symbol: str) -> str:
    """The line of a list that a demangled symbol needs."""
    for part in PARTS_OF_TYPE:
        if symbol.startswith(part):
            return f"type {symbol.removeprefix(part)}"
    return re.sub(r"(?<!operator)\(.*", "", symbol.replace("[abi:cxx11]", ""))


def exported(run_program: RunProgram, library: Path) -> set[str]:
    done = run_program("nm", "--dynamic", "--defined-only", "--demangle", library)
    assert done.returncode == 0, done.stderr
    return {named(line.split(None, 2)[2]) for line in done.stdout.splitlines()}


@pytest.mark.parametrize("library", LISTS, ids=lambda path: path.name.split(".")[0])
def test_a_library_exports_its_list_and_nothing_else(run_program: RunProgram, library: Path) -> None:
    found, wanted = exported(run_program, library), listed(LISTS[library])
    assert not found - wanted, f"exported and not in {LISTS[library].relative_to(ROOT)}"
    assert not wanted - found, f"in {LISTS[library].relative_to(ROOT)} and not exported"


def test_the_package_has_no_other_library() -> None:
    assert set(PACKAGE.rglob("*.so*")) == set(LISTS)


def test_a_symbol_needs_the_line_of_its_name() -> None:
    assert named("innkeeper::torch_layer::seed()") == "innkeeper::torch_layer::seed"
    assert named("innkeeper::torch_layer::home[abi:cxx11]()") == "innkeeper::torch_layer::home"
    assert named("innkeeper::lease::OpenFile::Delete::operator()(innkeeper::Entry*) const") == (
        "innkeeper::lease::OpenFile::Delete::operator()"
    )
    assert named("typeinfo name for innkeeper::LeaseBusy") == "type innkeeper::LeaseBusy"
