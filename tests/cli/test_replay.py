"""replay: a recorded program on a GPU that the machine does not have.

tests/unit/replay/replay_test.cc tests the computed figures.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from innkeeper_program import Machine
from repository import ROOT

TRACES = ROOT / "bench" / "traces"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "lstm.trace"
    file.write_bytes(gzip.decompress((TRACES / "lstm.trace.gz").read_bytes()))
    return file


def test_plays_a_record_and_says_what_it_takes(machine: Machine, trace: Path):
    text = machine.ok("replay", str(trace))
    assert "operators a step" in text and "on a simulated H100, PCIe 5 x16" in text
    assert [line.split()[0] for line in text.splitlines()[3:]] == ["90", "80", "70", "60", "50", "40"]
    words = ("--json", "--gpu", "RTX 4090", "--link", "PCIe 4 x16", "--share", "1,0.9,0.7,0.1")
    found = json.loads(machine.ok("replay", str(trace), *words))
    assert (found["gpu"], found["link"]) == ("RTX 4090", "PCIe 4 x16")
    whole, nine, seven, tenth = found["rows"]
    assert (
        whole["planned"]["bytes_in"] == 0 and whole["planned"]["seconds"] >= found["kernel_seconds"] * 0.999
    )
    for row in (nine, seven):
        assert row["planned"]["seconds"] <= row["pager"]["seconds"]
        assert row["planned"]["seconds"] < 0.95 * row["on_demand"]["seconds"], "the best of several schedules"
        assert row["planned"]["bytes_in"] <= 1.05 * row["offline"]["bytes_in"]
        assert row["planned"]["bytes_in"] >= row["least_bytes_in"]
    assert "out of memory" in tenth["failed"], "its loss alone needs more"


def test_reports_too_little_space_and_fails_where_it_is_throughout(machine: Machine, trace: Path):
    done = machine.run("replay", str(trace), "--share", "0.02,0.01")
    assert done.returncode == 1
    for line in done.stdout.splitlines()[3:]:
        assert "too little: " in line and "out of memory" in line and line.endswith("by kernels themselves)")
    assert "INNKEEPER_NODES" not in done.stdout, "advice for a program, and none is running"


def test_a_gpu_by_any_of_its_names_with_its_link_or_of_ones_own(machine: Machine, trace: Path):
    words = ("replay", str(trace), "--share", "0.9", "--json")
    found = json.loads(machine.ok(*words, "--gpu", "NVIDIA GeForce RTX 4060 Ti"))
    assert (found["gpu"], found["link"]) == ("RTX 4060 Ti", "PCIe 4 x8")
    found = json.loads(machine.ok(*words, "--gpu", "h200", "--link", "pcie4x16"))
    assert (found["gpu"], found["link"]) == ("H200", "PCIe 4 x16")
    own = json.loads(machine.ok(*words, "--gpu", "custom:100:500:8GiB", "--link", "custom:48"))
    assert own["figures"]["flops"]["bf16"] == own["figures"]["flops"]["fp32"] == 100e12
    assert (own["figures"]["bytes"], own["figures"]["link_bytes"]) == (500e9, 48e9)
    twice = json.loads(machine.ok(*words, "--gpu", "custom:200:1000:8GiB", "--link", "custom:48"))
    assert twice["kernel_seconds"] < own["kernel_seconds"]


def test_the_gpus_in_the_documents_are_those_that_are_known(machine: Machine, trace: Path):
    text = (ROOT / "docs" / "settings.md").read_text()
    for kind, source, row in (
        ("GPU", "gpu_table.cc", r'Figures\{\s*"([^"]+)"'),
        ("Link", "link_model.cc", r'^      \{"([^"]+)"'),
    ):
        line = re.search(rf"^{kind}s: ((?:[^.]|\.\d)+)\.", text, re.MULTILINE)
        assert line, kind
        named = re.findall(r"`([^`]+)`", line[1])
        known = re.findall(row, (ROOT / "src" / "cost" / source).read_text(), re.MULTILINE)
        assert sorted(named) == sorted(known) and len(set(known)) == len(known) > 10


def test_says_what_people_do_today_would_take(machine: Machine, trace: Path):
    words = ("replay", str(trace), "--share", "1,0.8,0.5")
    head, *rows = machine.ok(*words).splitlines()[2:]
    for way in ("modules", "activations", "optimizer"):
        assert way in head
    assert rows[0].split().count("1.00x") >= 5, "nothing moves where all fits"
    assert rows[1].split().count("-") == 1, "no activation of this one is worth moving"
    assert rows[2].split().count("-") == 3
    found = json.loads(machine.ok(*words, "--json"))
    whole, eight, five = found["rows"]
    for way in ("modules", "activations", "optimizer"):
        assert whole[way]["bytes_in"] == 0
        assert whole[way]["seconds"] == pytest.approx(found["kernel_seconds"])
        assert five[way]["least_room"] > five["budget"] and "seconds" not in five[way]
    with_fast_host = json.loads(machine.ok(*words, "--json", "--host-bandwidth", "1000"))
    assert with_fast_host["host_bandwidth"] == 1000e9
    by_host = with_fast_host["rows"][1]["optimizer"]
    assert by_host["by_host"], "gradients go there and parameters come back"
    assert by_host["bytes_in"] == pytest.approx(by_host["bytes_out"], rel=0.01)
    assert by_host["seconds"] < eight["optimizer"]["seconds"]
    slow = json.loads(machine.ok(*words, "--json", "--host-bandwidth", "50"))
    assert "by_host" not in slow["rows"][1]["optimizer"], "the GPU's step is faster than such a host's"
    assert slow["rows"][1]["planned"] == eight["planned"]
    paced = json.loads(machine.ok(*words, "--json", "--host-pace", "20", "--one-clock"))
    assert paced["host_pace_seconds"] == pytest.approx(20e-6) and paced["one_clock"] is True
    assert slow["host_pace_seconds"] == 0 and slow["one_clock"] is False


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nowhere",), "cannot read nowhere"),
        (("{trace}", "--card", "H100"), "--card is called --gpu now"),
        (("{trace}", "--card=H100"), "--card is called --gpu now"),
        (
            ("{trace}", "--gpu", "H9000"),
            '--gpu: "H9000" is no GPU that is known; the nearest are H200, H100, ',
        ),
        (
            ("{trace}", "--gpu", "custom:1:2"),
            "expected custom:TFLOPS:GB/s:SIZE, as in custom:165:1008:23GiB",
        ),
        (("{trace}", "--link", "rope"), '--link: "rope" is no link that is known; the nearest are NVMe 4, '),
        (("{trace}", "--share", "0"), "--share"),
        (("{trace}", "--share", "2"), "--share"),
        (("{trace}", "--share", "nan"), "--share"),
        (("{trace}", "--steps", "0"), "--steps"),
        (("{trace}", "--host-bandwidth", "0"), "--host-bandwidth"),
        (("{trace}", "--host-bandwidth", "nan"), "nan is no number from 1 to 1e+06"),
        (("{trace}", "--host-pace", "-NaN"), "-NaN is no number from 0 to 1e+06"),
        (("{packed}",), "is compressed: zcat"),
        (("{garbage}",), "line 2 of the record"),
        (("{short}",), "the record has 1 steps"),
        (("{directory}",), "cannot read"),
        ((), "FILE"),
    ],
)
def test_refuses_what_it_cannot_play(
    machine: Machine, trace: Path, tmp_path: Path, words: tuple[str, ...], says: str
):
    files = {"trace": trace, "packed": TRACES / "lstm.trace.gz", "directory": tmp_path}
    for name, text in (("garbage", "O fine 1:64o\nnothing\n"), ("short", "O fine 1:64o\nM step\n")):
        files[name] = tmp_path / name
        files[name].write_text(text)
    done = machine.run("replay", *(word.format(**files) for word in words))
    assert (done.returncode, done.stdout) == (64, "")
    assert says in done.stderr, done.stderr


def test_steps_that_differ_are_played_as_they_were_recorded(machine: Machine, tmp_path: Path):
    mib = 1 << 20
    lines = [f"O make {block}:{mib}o" for block in range(1, 21)]
    for step in range(40):  # Some steps evaluate half of it.
        for block in range(1, 11 if step % 7 == 3 else 21):
            lines.append(f"O use =100000000,{mib},1 {block}:{mib}r")
        lines.append("M step")
    trace = tmp_path / "varied.trace"
    trace.write_text("\n".join(lines) + "\n")
    words = ("replay", str(trace), "--as-recorded", "--share", "1,0.9,0.5,0.01")
    text = machine.ok(*words)
    assert text.startswith("40 steps as recorded, 20.0 MiB at their peak")
    found = json.loads(machine.ok(*words, "--json"))
    assert len(found["kernel_seconds"]) == 40
    whole, nine, half, none = found["rows"]
    assert "too little" in none["failed"] and "out of memory" in none["failed"]
    for row in (whole, nine, half):
        assert len(row["planned"]) == len(row["on_demand"]) == 40
    sums = [
        [sum(step["seconds"] for step in row[way]) for way in ("planned", "on_demand")]
        for row in (whole, nine, half)
    ]
    assert sums[0][0] == pytest.approx(sum(found["kernel_seconds"]), rel=0.01)
    assert all(planned <= 1.05 * on_demand for planned, on_demand in sums)
    empty = tmp_path / "empty.trace"
    empty.write_text("O make 1:64o\n")
    refused = machine.run("replay", str(empty), "--as-recorded")
    assert refused.returncode == 64 and "the record has no steps: recording.step() ends one" in refused.stderr
