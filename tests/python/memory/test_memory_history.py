"""Births and deaths of memory in the form that PyTorch's viewer reads."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path

import innkeeper
import pytest

import torch
from torch.cuda import _memory_viz

memory = torch.managed.memory


@pytest.fixture
def ended() -> Iterator[None]:
    gc.collect()
    yield
    memory._record_memory_history(None)


@pytest.mark.usefixtures("ended")
def test_a_snapshot_names_what_was_made_where_and_what_is_gone():
    old = torch.ones(1000, device="managed")
    memory._record_memory_history(clear_history=True)
    a = torch.ones(256, 256, device="managed")
    b = a @ a
    c = b.relu()
    del b
    old.add_(1)
    shown = memory._snapshot()
    sizes = sorted((row["total_size"], row["blocks"][0]["frames"][0]["name"]) for row in shown["segments"])
    assert sizes == [(4000, "before the record"), (1 << 18, "aten::fill_"), (1 << 18, "aten::relu")]
    (events,) = shown["device_traces"]
    assert [(row["action"], row["frames"][0]["name"]) for row in events] == [
        ("alloc", "aten::fill_"),
        ("alloc", "aten::mm"),
        ("alloc", "aten::relu"),
        ("free_requested", "aten::mm"),
        ("free_completed", "aten::mm"),
        ("alloc", "before the record"),
    ]
    assert [row["time_us"] for row in events] == list(range(1, 7))
    del a, c  # Recording goes on.
    assert len(memory._snapshot()["segments"]) == 1
    assert len(memory._snapshot()["device_traces"][0]) == 10


@pytest.mark.usefixtures("ended")
def test_pytorchs_viewer_reads_the_file(tmp_path: Path):
    memory._record_memory_history(max_entries=5, clear_history=True)
    kept = [torch.ones(1 << 20, device="managed") for _ in range(4)]
    del kept[0]
    memory._dump_snapshot(tmp_path / "shot.pickle")
    shown = pickle.loads((tmp_path / "shot.pickle").read_bytes())
    assert len(shown["device_traces"][0]) == 5  # the last
    assert "free completed" in _memory_viz.trace(shown)
    assert "12.0MiB" in _memory_viz.segsum(shown)
    assert "MemoryViz.js" in _memory_viz.trace_plot(shown)
    assert "MemoryViz.js" in _memory_viz.segment_plot(shown)


@pytest.mark.usefixtures("ended")
def test_one_record_at_a_time(tmp_path: Path):
    memory._record_memory_history(clear_history=True)
    with pytest.raises(RuntimeError, match=r"torch.managed.memory is being recorded: one record at a time"):
        innkeeper.record(tmp_path / "a.trace").__enter__()
    memory._record_memory_history(None)
    with (
        innkeeper.record(tmp_path / "a.trace"),
        pytest.raises(RuntimeError, match=r"a\.trace is being recorded: one record at a time"),
    ):
        memory._record_memory_history()
    memory._record_memory_history(None)  # The other record's end is not ours.
    torch.ones(3, device="managed")
    assert memory._snapshot()["device_traces"] == [[]]  # Nothing was recorded.


@pytest.mark.usefixtures("ended")
def test_what_died_in_a_pause_is_not_alive_after_it():
    memory._record_memory_history(clear_history=True)
    a = torch.ones(100, device="managed")
    memory._record_memory_history(None)
    del a
    memory._record_memory_history(max_entries=2)
    kept = [torch.ones(10, device="managed") for _ in range(5)]
    shown = memory._snapshot()
    assert len(shown["segments"]) == len(kept) and len(shown["device_traces"][0]) == 2


def test_what_makes_no_sense_is_told():
    with pytest.raises(ValueError, match="enabled='bogus': expected None"):
        memory._record_memory_history("bogus")
    with pytest.raises(ValueError, match="max_entries=-1: expected 0 or more"):
        memory._record_memory_history(max_entries=-1)


def test_what_was_not_recorded_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("innkeeper.managed_device.memory_history._history", None)
    with pytest.raises(RuntimeError, match="_record_memory_history"):
        memory._snapshot()
