"""docs/seeds.md: the tests that it names exist; each row names one, or a document, or a missing feature."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from repository import ROOT

PAGE = ROOT / "docs" / "seeds.md"
HEADER = ["feature", "here", "shown by"]


@cache
def names_in(file: Path) -> frozenset[str]:
    """The names of a file's tests, as its text has them: ``test_x`` of pytest, ``Suite.Name`` of gtest."""
    text = file.read_text()
    if file.suffix == ".py":
        return frozenset(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))
    found = re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", text, re.MULTILINE)
    return frozenset(f"{suite}.{name}" for suite, name in found)


def tables(page: str) -> dict[str, list[list[str]]]:
    """The rows of each section's table, each as its cells; the header comes first."""
    found: dict[str, list[list[str]]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        lines = [line for line in section.splitlines() if line.startswith("|")]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        found[section.splitlines()[0]] = [row for row in rows if not set("".join(row)) <= set("-: ")]
    return found


def what_is_wrong(row: list[str]) -> list[str]:
    """Names in a row that do not exist, or cells that the row lacks."""
    if len(row) != len(HEADER) or not all(row):
        return [f"{row}: not three cells, each with words"]
    _, here, shown = row
    wrong = []
    named = re.findall(r"`([^`\s]+)::([^`]+)`", shown)
    for file, name in named:
        path = ROOT / file
        if not path.is_file():
            wrong.append(f"{file}: no such file")
        elif name not in names_in(path):
            wrong.append(f"{file}: no test {name}")
    documents = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", shown)]
    wrong += [f"{target}: no such document" for target in documents if not (PAGE.parent / target).is_file()]
    says_what_is_missing = re.search(
        r"\bnot there[:,] \w+|\bnot there as \w+", f"{here} {shown}", re.IGNORECASE
    )
    if not (named or documents or says_what_is_missing):
        wrong.append(f"{row[0]}: neither a test, nor a document, nor what is not there")
    rest = re.sub(r"`[^`\s]+::[^`]+`|\[[^]]*\]\([^)]+\)|[\s,]", "", shown)
    if rest and not says_what_is_missing:
        wrong.append(f"{row[0]}: {rest} is no test and no document")
    return wrong


def test_there_is_a_table_for_each_of_the_five_documents():
    found = tables(PAGE.read_text())
    assert len(found) == 5
    for section, (header, *rows) in found.items():
        assert header == HEADER and len(rows) > 10, section
        features = [row[0] for row in rows]
        assert len(set(features)) == len(features), section


def test_each_row_is_shown_by_what_exists():
    rows = [row for _, *table in tables(PAGE.read_text()).values() for row in table]
    wrong = [complaint for row in rows for complaint in what_is_wrong(row)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| a | b | `tests/python/memory/test_bits.py::test_nothing_of_the_kind` |", "no test test_nothing"),
        (
            "| a | b | `tests/python/memory/test_bits.py::test_weights_are_bitwise_equal` |",
            "no test test_weights",
        ),
        ("| a | b | `tests/python/test_gone.py::test_x` |", "no such file"),
        ("| a | b | `tests/unit/device/arena_test.cc::Arena.IsATent` |", "no test Arena.IsATent"),
        ("| a | b | `tests/unit/device/arena_test.cc::ReusesTheLastFreedFirst` |", "no test Reuses"),
        ("| a | b | [nowhere](nowhere.md) |", "no such document"),
        ("| a | b | we are sure |", "neither a test"),
        ("| a | b | it is not there |", "neither a test"),
        ("| a | b | |", "not three cells"),
        ("| a | b |", "not three cells"),
        (
            "| a | b | `tests/unit/device/arena_test.cc::Arena.ReusesTheLastFreedFirst` and more |",
            "andmore is no test",
        ),
    ],
)
def test_a_row_that_shows_nothing_is_found(row: str, complaint: str):
    (cells,) = tables(f"## x\n\n{row}\n")["x"]
    assert any(complaint in said for said in what_is_wrong(cells))


@pytest.mark.parametrize(
    "row",
    [
        "| a | b | `tests/unit/device/arena_test.cc::Arena.ReusesTheLastFreedFirst` |",
        "| a | b | `tests/unit/residency/transfer_test.cc::TransferTest.PeersCopyDirectly`, "
        "[other](parallel.md#x) |",
        "| a | not there: nobody asked | - |",
    ],
)
def test_a_row_that_shows_something_is_good(row: str):
    (cells,) = tables(f"## x\n\n{row}\n")["x"]
    assert what_is_wrong(cells) == []
