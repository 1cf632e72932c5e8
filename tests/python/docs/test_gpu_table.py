"""The table of training under one cap of GPU memory: bench/gpu_table without a GPU."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from processes import RunProgram, is_running, wait_until
from repository import ROOT

import torch

sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT / "tools"))
import check_figures
from gpu_table import measure, process_memory, results, runner, table, ways
from gpu_table.cells import DEFAULT, Cell, all_cells, trial_cells
from gpu_table.program import Program
from gpu_table.results import Machine, Result
from gpu_table.workloads import WORKLOADS

H200 = Machine("NVIDIA H200", "580.159", "2.11.0", "0123abc", "2026-12-01")
PLAIN = Cell("T1", ways.PLAIN.name, None)
MANAGED = Cell("T1", ways.MANAGED[0].name, 12)
GIB = 1 << 30


def measured(cell: Cell, machine: Machine = H200, **figures: object) -> Result:
    shown = {"step_s": 0.5, "units_a_second": 16384.0, "digests": {"8": "aa"}, "peak_bytes": 12 * GIB}
    moved = {"pinned_bytes": 14 * GIB, "moved_bytes": 3 * GIB, "planned_periods": 4}
    return Result(cell.key, machine, "measured", shown | moved | figures, process_peak=13 * GIB)


def reference(**digests: str) -> Result:
    known = {step.removeprefix("step_"): digest for step, digest in digests.items()}
    return measured(PLAIN, step_s=0.4, digests=known)


class Cells:
    """Runs cells without a process, and records which."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, cell: Cell, machine: Machine) -> Result:
        self.ran.append(cell.key)
        return measured(cell, machine)


# Which cells, in which order


def test_the_reference_and_the_tightest_cap_come_first() -> None:
    first = [cell.key for cell in all_cells()[:2]]
    assert first == ["T1 / uncapped / plain PyTorch", "T1 / 12 GiB / managed, planned with recompute"]


def test_each_cell_is_there_once_and_behind_the_reference_of_its_workload() -> None:
    cells = all_cells()
    assert len(set(cells)) == len(cells) and len({cell.key for cell in cells}) == len(cells)
    seen: set[str] = set()
    for cell in cells:
        assert cell.is_reference or cell.workload in seen, cell.key
        seen.add(cell.workload)
    assert seen == set(WORKLOADS)


def test_the_default_selection_fits_six_minutes_by_its_estimates() -> None:
    assert 20 <= len(DEFAULT) <= 30
    assert sum(cell.estimate_s for cell in DEFAULT) <= 360
    assert {cell.cap_gib for cell in DEFAULT if cell.workload == "T1"} == {None, 20, 16, 12}


def test_every_cap_has_all_of_innkeepers_ways_and_a_rival() -> None:
    for name, work in WORKLOADS.items():
        for cap in work.caps:
            found = {cell.way for cell in all_cells() if (cell.workload, cell.cap_gib) == (name, cap)}
            assert found > {way.name for way in ways.MANAGED}, (name, cap)


def test_each_way_is_tried_without_a_gpu() -> None:
    assert {cell.way for cell in trial_cells()} == set(ways.WAYS)


def test_a_reference_hashes_where_each_way_ends() -> None:
    for cell in (MANAGED, Cell("T1", ways.FSDP2.name, 12)):
        assert set(cell.last_steps) <= set(PLAIN.last_steps)


# Caps


@pytest.mark.parametrize("total", [143_771 << 20, 85_899_345_920, 25_757_220_864, 12_884_901_889])
@pytest.mark.parametrize("gib", [4, 5.3, 12, 16, 20])
def test_a_rivals_cap_is_never_exceeded_and_no_byte_too_small(gib: float, total: int) -> None:
    cap = int(gib * GIB)
    allowed = int(measure.memory_fraction(cap, total) * total)
    assert allowed <= cap
    assert allowed >= min(cap, total) - 1


def test_innkeepers_cap_is_the_budget_of_its_gpu() -> None:
    settings = runner.environment_of(MANAGED)
    assert settings["INNKEEPER_NODES"] == f"cuda:0:{12 * GIB}B,host"
    odd = Cell("T2", ways.MANAGED[1].name, 5.3).cap_bytes
    assert odd is not None and odd % 64 == 0 and 0 <= 5.3 * GIB - odd < 64
    assert "INNKEEPER_NODES" not in runner.environment_of(Cell("T1", ways.FSDP2.name, 12))


@pytest.mark.parametrize("way", ways.MANAGED)
def test_innkeepers_ways_say_whether_they_plan_and_recompute(way: ways.Way) -> None:
    settings = runner.environment_of(Cell("T1", way.name, 12))
    on = settings["INNKEEPER_PLANNING"], settings["INNKEEPER_RECOMPUTE"]
    assert on == ("off" if "on demand" in way.name else "on", "on" if "with recompute" in way.name else "off")


# Lines changed


def commented(program: Program) -> None:
    """A docstring
    of two lines.
    """
    # A comment.
    program.device = "x"

    program.make_optimizer = lambda parameters: torch.optim.SGD(
        parameters,
        lr=1.0,  # "#" behind code is no comment line.
    )


def bare(program: Program) -> None:
    program.device = "x"


def test_lines_are_counted_without_docstring_comments_and_blank_lines() -> None:
    assert ways.count_lines(commented) == 5
    assert ways.count_lines(bare) == 1


def test_every_way_but_plain_pytorch_changes_the_program() -> None:
    lines = {way.name: way.lines_changed for way in ways.WAYS.values()}
    assert lines.pop(ways.PLAIN.name) == 0
    assert all(lines.values())
    assert {lines[way.name] for way in ways.MANAGED} == {2}


# Runs


def test_a_second_run_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    path, cells = tmp_path / "table.jsonl", list(DEFAULT[:3])
    first, second = Cells(), Cells()
    runner.run_all(cells[:2], H200, path, minutes=10, run=first)
    with path.open("a") as file:
        file.write('{"cell": "cut short by a ki')
    left = runner.run_all(cells, H200, path, minutes=10, run=second)
    assert first.ran == [cell.key for cell in cells[:2]]
    assert second.ran == [cells[2].key]
    assert [one.reason for one in left] == ["it has a result"] * 2


@pytest.mark.parametrize("other", [{"commit": "4567def"}, {"gpu": "NVIDIA H100"}, {"torch": "2.13.0"}])
def test_results_of_another_commit_gpu_or_pytorch_do_not_count(tmp_path: Path, other: dict[str, str]) -> None:
    path, cells = tmp_path / "table.jsonl", [PLAIN]
    runner.run_all(cells, H200, path, minutes=10, run=Cells())
    again = Cells()
    runner.run_all(cells, replace(H200, **other), path, minutes=10, run=again)
    assert again.ran == [PLAIN.key]
    assert len(results.load(path)) == 2
    assert list(results.latest(results.load(path), H200)) == [PLAIN.key]


def test_again_runs_all_and_the_last_result_counts(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    results.append(path, Result(PLAIN.key, H200, "killed by signal 9"))
    cells = Cells()
    runner.run_all([PLAIN], H200, path, minutes=10, again=True, run=cells)
    assert cells.ran == [PLAIN.key]
    assert results.latest(results.load(path), H200)[PLAIN.key].is_measured


def test_a_cell_that_would_end_too_late_is_left_out_and_shorter_ones_run(tmp_path: Path) -> None:
    long, short = Cell("T3", ways.FSDP2.name, 32), Cell("fits 8x256", ways.PLAIN.name, None)
    cells = Cells()
    minutes = (short.estimate_s + 5) / 60
    left = runner.run_all([long, short], H200, tmp_path / "table.jsonl", minutes, run=cells)
    assert cells.ran == [short.key]
    assert [one.cell for one in left] == [long]
    assert "are left" in left[0].reason


def test_a_result_is_in_the_file_before_the_next_cell_begins(tmp_path: Path) -> None:
    path, there = tmp_path / "table.jsonl", []

    def run(cell: Cell, machine: Machine) -> Result:
        there.append(len(results.load(path)))
        return measured(cell, machine)

    runner.run_all(list(DEFAULT[:3]), H200, path, minutes=10, run=run)
    assert there == [0, 1, 2]


Ended = Callable[..., Result]


@pytest.fixture
def ended(processes: None) -> Ended:
    """The result of a cell whose process runs this script."""

    def run(script: str, limit_s: float = 60) -> Result:
        return runner.run_cell(PLAIN, H200, [sys.executable, "-S", "-c", script], limit_s)

    return run


def test_a_killed_cell_says_by_which_signal(ended: Ended) -> None:
    assert ended("import os; os.kill(os.getpid(), 9)").status == f"killed by signal {signal.SIGKILL}"


def test_a_cell_over_its_limit_is_stopped_with_what_it_started(ended: Ended, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '100'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "time.sleep(100)"
    )
    result = ended(script, limit_s=1.5)
    assert result.status == "over the limit of 1.5 s"
    assert 1.5 <= result.wall_s < 20
    child = int(note.read_text())
    wait_until(lambda: not is_running(child))


def test_an_error_is_its_last_line(ended: Ended) -> None:
    assert ended("raise RuntimeError('one\\ntwo')").status == "two"
    assert ended("raise SystemExit(3)").status == "ended with 3"
    assert ended("pass").status == "printed nothing"


def test_no_memory_says_how_much_there_was(ended: Ended) -> None:
    script = """print('noise\\n{"status": "out of memory", "peak_bytes": 1610612736}')"""
    result = ended(script)
    assert result.status == "out of memory at 1.50 GiB"
    assert not result.is_measured


def test_a_package_that_is_not_installed_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways.importlib.util, "find_spec", lambda name: None)
    cell = Cell("T1", ways.CPU_OFFLOAD.name, 12)
    assert runner.run_cell(cell, H200).status == "torchao is not installed"


# Bits


def test_a_digest_depends_on_each_bit_and_on_the_order() -> None:
    first, second = torch.zeros(7, dtype=torch.bfloat16), torch.ones(3, 2)
    same = measure.digest([first.clone(), second.clone()])
    assert measure.digest([first, second]) == same
    assert measure.digest([second, first]) != same
    changed = first.clone()
    changed.view(torch.int16)[6] ^= 1
    assert measure.digest([changed, second]) != same


@pytest.mark.parametrize(("digests", "said"), [({"8": "aa"}, "yes"), ({"8": "ab"}, "no"), ({"5": "aa"}, "-")])
def test_bits_are_compared_after_equal_numbers_of_steps(digests: dict[str, str], said: str) -> None:
    result = measured(MANAGED, digests=digests)
    assert table.same_bits(MANAGED, result, reference(step_8="aa", step_4="aa")) == said


def test_a_way_that_trains_otherwise_has_other_numbers() -> None:
    cell = Cell("T1", ways.ADAMW_8BIT.name, 12)
    assert table.same_bits(cell, measured(cell), reference(step_8="aa")) == "other numbers"


# The table


def test_a_row_has_speed_share_peaks_bits_and_lines() -> None:
    row = table.row_of(MANAGED, measured(MANAGED), reference(step_8="aa"))
    assert row == [
        "**managed, planned with recompute**", "12 GiB", "16,384", "0.800", "12.00 GiB", "13.00 GiB",
        "14.00 GiB", "yes", "2", "3.00 GiB moved a step",
    ]  # fmt: skip


def test_what_did_not_run_has_its_reason_in_its_row() -> None:
    result = Result(MANAGED.key, H200, "out of memory at 11.90 GiB", {"peak_bytes": 12 * GIB})
    row = table.row_of(MANAGED, result, reference(step_8="aa"))
    assert row[2:8] == ["-"] * 6
    assert row[-1] == "out of memory at 11.90 GiB"


def test_no_plan_and_no_move_are_said() -> None:
    assert table.note_of(MANAGED, measured(MANAGED, planned_periods=0)).endswith(", no plan was followed")
    assert table.note_of(MANAGED, measured(MANAGED, moved_bytes=0)) == "0 B moved"


def test_the_head_is_of_the_form_that_the_check_of_figures_reads() -> None:
    known = {PLAIN.key: reference(step_8="aa"), MANAGED.key: measured(MANAGED)}
    lines = list(table.lines(all_cells(), known, H200, trial=False))
    marks = check_figures.MARK.findall(lines[0])
    assert [(commit, command) for commit, _, command, _ in marks] == [("0123abc", "make table")]
    assert check_figures.source_of("make table", ROOT) == "Makefile"
    assert "NVIDIA H200, driver 580.159, PyTorch 2.11.0, 2026-12-01" in lines[0]
    assert lines[2] == "**T1**: Llama-3.2-3B, batch 2 of 4,096 tokens, checkpointing"
    assert [line.count("|") for line in lines[4:]] == [len(table.COLUMNS) + 1] * 4
    assert lines[4].split(" | ")[2] == "tokens/s"


def test_code_that_fails_fails_the_trial_but_a_missing_package_does_not() -> None:
    cell = Cell("T1", ways.CPU_OFFLOAD.name, 12, trial=True)
    assert table.has_failed(cell, Result(cell.key, H200, "ImportError: no such name"))
    assert not table.has_failed(cell, Result(cell.key, H200, cell.how.missing(has_gpu=False)))
    assert not table.has_failed(cell, measured(cell))


def test_nvidia_smi_is_read_where_nvml_is_missing() -> None:
    text = "41, 100\n42, 512\n42, 1024\n43, [N/A]\n"
    assert process_memory.from_smi(text, 42) == 1536 << 20
    assert process_memory.from_smi(text, 43) is None
    assert process_memory.from_smi("", 42) is None


# All of it


Trial = Callable[[str], str]


@pytest.fixture
def trial(run_python: RunProgram, tmp_path: Path) -> Trial:
    """Makes the table of the cells with matching names."""

    def run(pattern: str) -> str:
        words = ("--trial", "--minutes", "60", "--results", tmp_path / "table.jsonl", "--only", pattern)
        done = run_python("bench/gpu_table", *words, timeout=600)
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.startswith("No measurement: there is no GPU here.")
        return done.stdout

    return run


def test_innkeepers_ways_have_the_bits_of_plain_pytorch_on_a_simulated_gpu(trial: Trial) -> None:
    printed = trial("T3.*(plain|recompute|on demand)|fits 8x256")
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| **managed")]
    assert [row[7] for row in rows] == ["yes"] * 3
    assert [row[-1] for row in rows][2] == "0 B moved |"
    assert all("moved a step" in row[-1] and "no plan" not in row[-1] for row in rows[:2])


def test_the_rivals_of_states_run_on_the_cpu(trial: Trial) -> None:
    rows = rows_of(trial("T1.*(plain|FSDP2|torchao|save)"))
    assert rows["FSDP2, CPUOffloadPolicy"][7] == rows["save_on_cpu"][7] == "yes"
    assert rows["torchao, CPUOffloadOptimizer"][-1] in ("torchao is not installed", "needs a GPU")
    assert rows["torchao, 8-bit AdamW"][-1] in ("torchao is not installed", "")


def test_the_rivals_of_activations_run_on_the_cpu(trial: Trial) -> None:
    """All but torch.compile, which `make table` tries (documented_commands.py)."""
    rows = rows_of(trial("T5.*(plain|check)|T2.*micro"))
    assert rows["checkpointing"][7] == rows["selective checkpointing"][7] == "yes"
    assert rows["smaller micro-batches"][7] == "-"  # Its reference did not run.


def rows_of(printed: str) -> dict[str, list[str]]:
    """Cells of each row, by way."""
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in printed.splitlines()]
    return {row[0]: row for row in rows if len(row) == len(table.COLUMNS)}


def test_predictions_are_rows_of_shares(run_python: RunProgram) -> None:
    done = run_python("bench/gpu_table/predict.py", "--quick")
    assert done.returncode == 0, done.stderr[-4000:]
    head, _, row = done.stdout.splitlines()
    assert head.startswith("| workload | cap | peak without a cap | kernels / ms | on demand | planned |")
    shares = [float(share) for share in row.split(" | ")[4:7]]
    assert all(0 < share <= 1 for share in shares)
