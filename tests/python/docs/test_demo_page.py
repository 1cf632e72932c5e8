"""The demo, small, and its page in a real browser: all of it is readable, on a phone and in the dark, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from browser import CHECK, browser, show
from documented_commands import SMALL
from processes import RunProgram
from selenium.webdriver import Chrome

__all__ = ["browser"]

WIDTHS = (360, 390, 768, 1280)
PAPER = 718  # CSS pixels of an A4 page between its margins.


# Three steps, too few for the demo's own check of the loss. The second page shows runs that differ.
THREE_GPUS = """
import sys
sys.path.insert(0, "examples")
import demo, demo_page
runs = demo.three_runs(demo.parse(sys.argv[2:]))
page = demo_page.page(runs, [])
runs[2]["sha256"] = runs[2]["sha256"][::-1]
with open(sys.argv[1], "w") as file:
    print(page, demo_page.page(runs, []), sep="NEXT", file=file)
"""


class Demo(NamedTuple):
    """Output of a run of the demo, and the page that it wrote."""

    out: str
    path: Path
    page: str


@pytest.fixture(scope="module")
def demo(run_python: RunProgram, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    path = tmp_path_factory.mktemp("demo") / "page.html"
    done = run_python("examples/demo.py", "--simulate", "--steps", "30", "--page", str(path), *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return Demo(done.stdout, path, path.read_text())


@pytest.fixture(scope="module")
def three_gpus(run_python: RunProgram, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a run on three GPUs, and the same with other weights in one run."""
    path = tmp_path_factory.mktemp("demo") / "pages"
    wanted = ["--simulate", "--steps", "3", "--gpus", "3", "--fraction", "0.9", *SMALL]
    done = run_python("-c", THREE_GPUS, str(path), *wanted)
    assert done.returncode == 0, done.stderr
    one, other = path.read_text().split("NEXT")
    return one, other


@pytest.fixture
def wrong(browser: Chrome) -> Callable[..., list[str]]:
    """Faults of a page as a browser shows it; messages of its console included."""

    def look(page: Path, width: int, **options: bool) -> list[str]:
        show(browser, page, width, **options)
        found = list(browser.execute_script(CHECK.read_text(), width))
        return found + [f"the console says: {entry['message']}" for entry in browser.get_log("browser")]

    return look


def test_the_demo_prints_a_table_and_writes_a_page(demo: Demo):
    assert "bitwise equal" in demo.out and str(demo.path) in demo.out and "slowdown" in demo.out
    assert len(demo.page) < 100_000 and "http" not in demo.page and "<script" not in demo.page


def test_the_pages_numbers_are_the_runs(demo: Demo):
    """The page shows the terminal's table: both are made of the same rows."""
    cells = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr.*?</tr>", demo.page)]
    printed = [re.findall(r"[^\s│]+", line) for line in demo.out.splitlines() if line.startswith("│")]
    for row in filter(None, cells):
        assert any(line[-3:] == row for line in printed), (row, printed)


def test_a_quantity_is_told_alike_wherever_it_stands(demo: Demo):
    text = demo.page.replace("\N{NO-BREAK SPACE}", " ")
    (slowdown,) = re.findall(r"<tr><th[^>]*>slowdown \(simulated\).*?<td>([\d.,]+)</td></tr>", text)
    assert f"memory, {slowdown}\N{MULTIPLICATION SIGN} the time</h1>" in text
    fetched, left = re.findall(r"in each step ([\d.,]+ \w+) come to the GPU and ([\d.,]+ \w+) leave", text)[0]
    assert f"fetched, {fetched} a step" in text and f"written back, {left} a step" in text
    assert not re.search(r"\b0\.0+ [KMG]iB", text), "what is small has a unit of its own"
    assert ">quantity <span>unit</span></th>" in text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off(demo: Demo, wrong: Callable[..., list[str]], width: int, dark: bool):
    assert wrong(demo.path, width, dark=dark) == []


def test_nothing_is_cut_off_on_paper(demo: Demo, wrong: Callable[..., list[str]]):
    """Printed by a browser in dark mode, too: paper is white."""
    assert wrong(demo.path, PAPER, paper=True, dark=True) == []


def test_several_gpus_have_an_area_each(three_gpus: tuple[str, str]):
    assert all(f"sim:{n}, at most" in three_gpus[0] for n in range(3)) and "3 GPUs" in three_gpus[0]


def test_runs_that_differ_are_not_called_the_same(three_gpus: tuple[str, str]):
    assert "<h1>Same bits," in three_gpus[0]
    assert "<h1>Different bits," in three_gpus[1] and "Same bits" not in three_gpus[1]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_other_runs_is_cut_off(
    three_gpus: tuple[str, str], tmp_path: Path, wrong: Callable[..., list[str]], width: int
):
    path = tmp_path / "page.html"
    path.write_text(three_gpus[1])
    assert wrong(path, width) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (".tile { width: 500px }", "leaves the window"),
        ("table { width: 400px }", "the page is"),
        ("h1 { white-space: nowrap; overflow: hidden }", "is wider than its box"),
        (".note { height: 1rem; overflow: hidden }", "text is cut off by"),
        ("svg text { transform: translateX(-3rem) }", "text leaves its box"),
        ("svg text { font-size: 30px }", "labels lie on each other"),
        (
            ".frame { padding-right: 0 } .frame text:last-of-type { transform: translateX(2rem) }",
            "text leaves its box",
        ),
        (".note { color: #bbb }", "contrast of"),
        ("li { font-size: 9px }", "smaller than 12 pixels"),
        ("thead th { font-size: 20px; overflow-wrap: break-word }", "a word is broken"),
        ("</style><script>nobody()</script><style>", "nobody is not defined"),
        ("</style><script src='http://127.0.0.1:9/it.js'></script><style>", "is fetched"),
    ],
)
def test_the_check_finds_what_is_wrong(
    demo: Demo, tmp_path: Path, wrong: Callable[..., list[str]], damage: str, said: str
):
    page = tmp_path / "damaged.html"
    page.write_text(demo.page.replace("</style>", f"{damage}</style>"))
    assert any(said in line for line in wrong(page, 360))


def test_the_check_finds_a_picture_without_words(demo: Demo, tmp_path: Path, wrong: Callable[..., list[str]]):
    page = tmp_path / "damaged.html"
    page.write_text(re.sub(r"<desc>.*?</desc>", "", demo.page, count=1))
    assert any("a picture without a text in its place" in line for line in wrong(page, 1280))
