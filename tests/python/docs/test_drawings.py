"""The figures of docs/internals are drawn from the code, and have a text alternative."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ET
from types import ModuleType

import pytest
from repository import ROOT

FIGURES = sorted((ROOT / "docs/internals").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    """tools/draw_figures.py."""
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("draw_figures", ROOT / "tools/draw_figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["draw_figures"] = module
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_is_what_the_code_says(path, drawing: ModuleType) -> None:
    assert path.read_text() == getattr(drawing, path.stem)().svg()


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_says_in_words_what_it_shows(path) -> None:
    root = ET.parse(path).getroot()
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None and description is not None
    assert title.text and description.text and len(description.text) > 100
    pages = [page.read_text() for page in [ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")]]
    assert any(path.name in page for page in pages), f"no page shows {path.name}"


def test_the_states_are_read_from_the_header(drawing: ModuleType) -> None:
    rows = drawing.table_in("src/residency/block/state.h", "kTransitions")
    assert [row[0] for row in rows] == ["absent", "arriving", "shared", "owned"]
    assert drawing.enumerators("src/residency/block/state.h", "ReplicaEvent")[:2] == ["born", "fetch_begin"]
    said = drawing.replica_states().description
    assert "shared to owned by write or promote" in said and "absent to shared" not in said


def test_a_function_that_is_gone_is_named(drawing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = drawing.Stage("nothing_like_it", "src/residency/operands.cc", "")
    monkeypatch.setattr(drawing, "PATH", (gone,))
    with pytest.raises(SystemExit, match=r"operands\.cc has no nothing_like_it"):
        drawing.operand_path()
