"""top, driven in tmux as a person would."""

from __future__ import annotations

import re
import shutil
import uuid as unique
from collections.abc import Iterator

import pytest
from board_file import Board
from innkeeper_program import PROGRAM, Machine, gpus, wait_until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own with one window, whose shell stays when the program ends."""

    def __init__(self, machine: Machine, width: int, height: int) -> None:
        self.socket = f"innkeeper-{unique.uuid4().hex[:12]}"
        self.machine = machine
        self.tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "env PS1='$ ' sh"
        )

    def tmux(self, *words: str) -> str:
        return self.machine.command("tmux", "-L", self.socket, *words).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def shows(self, text: str) -> None:
        """Waits until the screen shows the text."""
        try:
            wait_until(lambda: re.search(text, self.screen()) is not None, 30)
        except AssertionError:
            raise AssertionError(f"no {text!r} on:\n{self.screen()}") from None

    def close(self) -> None:
        self.tmux("kill-server")


@pytest.fixture
def terminal(machine: Machine) -> Iterator[Terminal]:
    made = Terminal(machine, 140, 24)
    made.shows(r"\$")
    yield made
    made.close()


def start(terminal: Terminal, *words: str) -> None:
    terminal.type(f"{PROGRAM} top {' '.join(words)}; echo ended with $?", "Enter")
    terminal.shows(r"q quit|every")


def test_shows_gpus_leases_and_plots_and_quits(machine: Machine, terminal: Terminal):
    machine.start("run", "--mem", "8G", "--", "sleep", "60")
    wait_until(lambda: len(machine.held()) == 1)
    machine.set(gpus(2, {0: "  memory 139G 512M 69G\n  utilization 50 0\n"}))
    start(terminal, "--interval", "0.5")
    terminal.shows(r"promised 8\.0")
    terminal.shows("▄▄▄.* 50%.*▄▄▄.* 50%")  # Memory and utilisation over time.
    terminal.shows("sleep 60")
    terminal.type("q")
    terminal.shows("ended with 0")
    assert "promised" not in terminal.screen()  # The earlier screen is back.


def test_refreshes(machine: Machine, terminal: Terminal):
    start(terminal, "--interval", "0.5")
    terminal.shows("2 GPUs")
    machine.set(gpus(3))
    terminal.shows("3 GPUs")


def test_keys(machine: Machine, terminal: Terminal):
    machine.start("run", "--mem", "8G", "--", "sleep", "77")
    machine.start("run", "--mem", "200M", "--", "sleep", "88")
    wait_until(lambda: len(machine.files()) == 2)
    start(terminal)
    terminal.shows("sorted by number")
    terminal.type("s")
    terminal.shows("sorted by used")
    terminal.type("s", "s", "s")
    terminal.shows("sorted by number")
    terminal.type("Down")
    terminal.shows("(?m)^>0")
    terminal.type("Down")
    terminal.shows("(?m)^>1")
    terminal.type("Up")
    terminal.shows("(?m)^>0")
    terminal.type("a")
    wait_until(lambda: re.search("(?m)^>", terminal.screen()) is None)
    terminal.type("h")
    terminal.shows("q +quit")
    terminal.type("x")
    terminal.shows("promised 8")
    terminal.type("p")
    terminal.shows("paused")
    terminal.type("p", "-")
    terminal.shows("every 2 s")
    terminal.type("+", "+", "+")
    terminal.shows(r"every 0\.5 s")


def test_a_chosen_gpu_shows_its_own_leases(machine: Machine, terminal: Terminal):
    machine.start("run", "--", "sleep", "77")
    wait_until(lambda: len(machine.held()) == 1)
    machine.start("run", "--", "sleep", "88")
    wait_until(lambda: len(machine.files()) == 2)
    start(terminal)
    terminal.shows("(?s)sleep 77.*sleep 88")
    terminal.type("Down")
    terminal.shows("(?m)^>0")
    assert "sleep 77" in terminal.screen() and "sleep 88" not in terminal.screen()


@pytest.mark.parametrize("key", ["C-c"])
def test_control_c_gives_the_terminal_back(terminal: Terminal, key: str):
    start(terminal)
    terminal.type(key)
    wait_until(lambda: "h help" not in terminal.screen())  # While it runs, top would consume the typed text.
    terminal.type("stty -a | grep -o -- '.icanon'", "Enter")
    terminal.shows(r"(?m)^(\$ )?[ ;]icanon")  # The shell may have shown its prompt before.


def test_control_z_and_back(terminal: Terminal):
    start(terminal)
    terminal.type("C-z")
    terminal.shows(r"(?i)stopped|suspended")
    terminal.type("fg", "Enter")
    terminal.shows("2 GPUs")
    terminal.type("q")
    terminal.shows(r"\$ $|ended")


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 10), (80, 3), (132, 40)])
def test_any_size_of_terminal(machine: Machine, width: int, height: int):
    machine.set(gpus(8))
    made = Terminal(machine, width, height)
    try:
        made.type(f"{PROGRAM} top", "Enter")
        made.shows("innkeeper  8 GPU")
        lines = made.screen().splitlines()
        assert len(lines) <= height and all(len(line) <= width for line in lines)
        if height >= 5:
            made.shows("(?m)^ 0 ")
        if width >= 60:
            assert "h help  q quit" in lines[0]
        made.type("q")
        wait_until(lambda: "8 GPU" not in made.screen())
    finally:
        made.close()


def test_a_smaller_window_is_redrawn(machine: Machine, terminal: Terminal):
    start(terminal, "--interval", "60")
    terminal.shows("NVIDIA H200")
    terminal.tmux("resize-window", "-x", "50", "-y", "12")
    wait_until(lambda: max(len(line) for line in terminal.screen().splitlines()) <= 50)
    terminal.shows("2 GPUs")


def test_no_driver_is_said_and_waited_for(machine: Machine, terminal: Terminal):
    machine.set("error nvmlInit_v2 9\n")
    start(terminal, "--interval", "0.5")
    terminal.shows("0 GPUs")
    assert "promised" not in terminal.screen()


def test_shows_what_managed_devices_hold_of_the_chosen_gpu(machine: Machine, terminal: Terminal):
    machine.ok("status")  # makes the directory
    board = Board(machine.leases)
    board.add(4242, "python big.py", "node=cuda:0 139586437120 68719476736 137438953472 512 90000\n")
    machine.set(gpus(2, {0: "  process 4242 64G\n"}))
    start(terminal)
    terminal.shows(r"4242 +cuda:0 +64\.0 / 130\.0")
    terminal.type("Down")
    terminal.shows("(?m)^>0")
    assert "big.py" in terminal.screen()
    terminal.type("Down")
    terminal.shows("(?m)^>1")
    wait_until(lambda: "big.py" not in terminal.screen())
    board.close()
