"""The documents are true: code runs and prints the shown text, and the named files and symbols exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from documents import fences, without_numbers
from processes import RunProgram
from repository import ROOT

README = ROOT / "README.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def numbers(text: str) -> list[float]:
    """All numbers in the text, sizes in bytes."""
    units = ("", "KiB", "MiB", "GiB", "TiB")
    found = re.findall(r"(\d[\d,]*(?:\.\d+)?)(?:\s([KMGT]iB)\b)?", text)
    return [float(digits.replace(",", "")) * 1024 ** units.index(unit) for digits, unit in found]


# The first example needs more memory than there is.
NEEDS_MORE = """
now = innkeeper.stats()
assert now["evictions"] > 0 and now["fetches"] > 0, now
for node in now["nodes"].values():
    assert node["peak"] <= node["budget"] and node["resident"] == node["recount"], node
"""
RUN = (README, *(ROOT / "docs" / name for name in ("python.md", "using.md", "planning.md")))
PYTHON = [fence.line for fence in fences(README) if fence.language == "python"]


def test_the_readme_is_short_and_starts_with_what_can_be_run():
    found = fences(README)
    assert [fence.language for fence in found[:2]] == ["diff", "bash"] and found[1].line < 40
    assert PYTHON and PYTHON[0] < 50
    assert len(README.read_text().splitlines()) <= 120


@pytest.mark.parametrize(
    ("document", "line"),
    [(document, fence.line) for document in RUN for fence in fences(document) if fence.language == "python"],
)
def test_python_blocks_print_what_stands_below_them(run_python: RunProgram, document: Path, line: int):
    found = fences(document)
    index = next(i for i, fence in enumerate(found) if fence.line == line)
    first = document == README and line == PYTHON[0]
    (ROOT / "build").mkdir(exist_ok=True)  # A block writes there.
    done = run_python("-c", found[index].text + (NEEDS_MORE if first else ""))
    assert done.returncode == 0, done.stderr
    shown = found[index + 1]
    assert shown.language == "text", f"line {line}: its output is not shown"
    assert without_numbers(done.stdout) == without_numbers(shown.text), done.stdout
    for now, then in zip(numbers(done.stdout), numbers(shown.text), strict=True):
        assert abs(now - then) <= max(now, then) / 4, f"{then} is stale; now it prints\n{done.stdout}"


def test_choosing_s_first_block_runs_without_a_gpu(run_python: RunProgram, tmp_path: Path):
    """As the page says: simulated GPUs, and a memory that they have."""
    page = ROOT / "docs" / "choosing.md"
    said = re.search(
        r"without a GPU set `INNKEEPER_NODES=(\S+)` first, and ask for less: `(.*)`", page.read_text()
    )
    assert said is not None
    nodes, memory = said.groups()
    block = next(fence.text for fence in fences(page) if fence.language == "python")
    assert block.count("memory=8 << 30") == 1
    block = block.replace("memory=8 << 30", memory)
    done = run_python("-c", block, INNKEEPER_NODES=nodes, INNKEEPER_LEASE_DIR=str(tmp_path / "leases"))
    assert done.returncode == 0 and done.stdout.startswith("managed:0 {'GPU-"), done.stderr


def test_mistakes_in_settings_read_as_documented(run_python: RunProgram):
    pairs: list[tuple[str, str]] = []
    for fence in fences(ROOT / "docs" / "settings.md"):
        if fence.language == "errors":
            lines = fence.text.splitlines()
            pairs += zip(lines[::2], lines[1::2], strict=True)
    assert len(pairs) > 10
    script = """
import json, os, sys
import innkeeper
said = []
for setting in json.loads(sys.argv[1]):
    name, _, value = setting.rpartition("INNKEEPER_SIM=")
    os.environ["INNKEEPER_SIM"] = value if name or setting.startswith("INNKEEPER_SIM=") else ""
    try:
        innkeeper.configure("sim:1MiB" if setting.startswith("INNKEEPER_SIM=") else setting)
        said.append("accepted")
    except Exception as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""
    done = run_python("-c", script, json.dumps([setting for setting, _ in pairs]))
    assert done.returncode == 0, done.stderr
    for (setting, documented), said in zip(pairs, json.loads(done.stdout), strict=True):
        kind, text = documented.split(": ", 1)
        assert said.startswith(kind) and "\n" not in said, (setting, said)
        assert without_numbers(said).endswith(without_numbers(text)), (setting, said)


def test_the_state_table_is_the_codes():
    header = (ROOT / "src/residency/block/state.h").read_text()
    states = ["absent", "arriving", "shared", "owned"]
    in_code = []
    for row in re.findall(r"/\*\s*(\w+)\s*\*/\s*\{\{(.*?)\}\}", header):
        cells = [cell.strip() for cell in row[1].split(",")]
        in_code.append([row[0], *("-" if cell == "kIllegal" else states[int(cell)] for cell in cells)])
    text = (ROOT / "docs/design/coherence.md").read_text()
    start = text.index("| | born |")
    written = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text[start : text.index("\n\n", start)].splitlines()
        if not line.startswith("|---")
    ]
    header_row, *rows = written
    assert rows == in_code and [row[0] for row in rows] == states
    events = re.search(r"//\s+(born\s.*free)", header)
    assert events is not None and header_row[1:] == events.group(1).split()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_documents_name_exists(document: Path):
    text = document.read_text()
    missing = [
        target
        for target in re.findall(r"\]\(([^)#]+)\)", text)
        if not target.startswith("http") and not (document.parent / target).exists()
    ]
    named = re.findall(r"`((?:src|tests|docs|tools|python|examples|bench|cmake|include)/[\w./-]+)`", text)
    missing += [path for path in named if not (ROOT / path).exists()]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = set(re.findall(r"(?:`|^)make ([\w-]+)", text, re.MULTILINE))
    missing += [f"make {name}" for name in asked - targets]
    listed = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    asked = set(re.findall(r"--preset (\S+?)(?=[\s`])", text))
    missing += [f"--preset {name}" for name in asked - {preset["name"] for preset in listed}]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_are_short(document: Path):
    free = ("|", "ValueError", "aten::")  # Rows of tables, and messages verbatim.
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        assert len(line) <= 120 or line.startswith(free), f"line {number}"
