"""innkeeper.record: operators' accesses and costs, in a file that `innkeeper replay` plays."""

from __future__ import annotations

import gzip
import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import innkeeper
import pytest
from processes import RunProgram
from repository import ROOT

import torch

PROGRAM = Path(sys.executable).parent / "innkeeper"
SCRIPT = ROOT / "bench" / "traces" / "record.py"


def lines(path: Path) -> list[str]:
    text = path.read_bytes()
    return (gzip.decompress(text) if path.suffix == ".gz" else text).decode().splitlines()


@pytest.mark.parametrize("name", ["small.trace", "small.trace.gz"])
def test_operators_births_and_deaths_are_recorded(
    configure: Callable[[str], None], tmp_path: Path, name: str
):
    configure("sim:64MiB,host:256MiB")
    a = torch.ones(256, 256, device="managed")
    with innkeeper.record(tmp_path / name) as recording:
        b = a @ a
        b.add_(1)
        del b
        recording.step()
    a.add_(1)  # Not recorded any more.
    found = lines(tmp_path / name)
    size = 4 * 256 * 256
    product = re.fullmatch(
        rf"O aten::mm =(\d+),(\d+),1,fp32 (\d+):{size}r (?:\3:{size}r )?(\d+):{size}o", found[0]
    )
    assert product, found
    assert int(product[1]) == 2 * 256**3 and int(product[2]) >= 3 * size
    assert re.fullmatch(rf"O aten::add_ =0,\d+,1 {product[4]}:{size}w", found[1]), found
    assert found[2:] == [f"F {product[4]}", "M step"]


def test_a_result_that_had_no_bytes_is_written(configure: Callable[[str], None], tmp_path: Path):
    configure("sim:64MiB,host:256MiB")
    a = torch.ones(256, 256, device="managed")
    b = torch.empty(0, device="managed")
    with innkeeper.record(tmp_path / "t"):
        torch.add(a, a, out=b.resize_(0))
        b.add_(1)
    size = 4 * 256 * 256
    adds = [line for line in lines(tmp_path / "t") if line.startswith("O aten::add")]
    made = re.fullmatch(rf"O aten::add =\d+,\d+,\d+ (\d+):{size}r \1:{size}r (\d+):{size}w", adds[0])
    assert made, adds
    assert re.fullmatch(rf"O aten::add_ =\d+,\d+,1 {made[2]}:{size}w", adds[1]), adds


def test_threads_events_are_in_order(configure: Callable[[str], None], tmp_path: Path):
    configure("sim:64MiB,host:256MiB")
    x = torch.ones(8, device="managed")

    def use(name: str):
        getattr(x, name)(2)
        made = x + 1
        del made

    names = ["add_", "mul_", "sub_", "div_"]
    with innkeeper.record(tmp_path / "t") as recording:
        for name in names:
            thread = threading.Thread(target=use, args=(name,))
            thread.start()
            thread.join()
            recording.step()
    kinds = [line.split()[:2] for line in lines(tmp_path / "t") if line[0] != "F"]
    assert kinds == [
        [letter, what]
        for name in names
        for letter, what in (("O", f"aten::{name}"), ("O", "aten::add"), ("M", "step"))
    ]
    assert [line[0] for line in lines(tmp_path / "t")] == ["O", "O", "F", "M"] * len(names)


def test_a_view_is_no_operator(configure: Callable[[str], None], tmp_path: Path):
    configure("sim:64MiB,host:256MiB")
    linear = torch.nn.Linear(8, 8, bias=False, device="managed")
    x = torch.ones(2, 3, 8, device="managed")
    with innkeeper.record(tmp_path / "t"):
        linear(x).transpose(0, 1).unsqueeze(0)
    assert [line.split()[1] for line in lines(tmp_path / "t") if line[0] == "O"] == ["aten::mm"]


def test_a_file_that_cannot_be_written_is_told_before_anything_is_recorded(tmp_path: Path):
    ran = False
    with pytest.raises(OSError, match="nowhere"), innkeeper.record(tmp_path / "nowhere" / "t"):
        ran = True
    assert not ran
    with innkeeper.record(tmp_path / "t"):
        torch.ones(3, device="managed").add_(1)


def test_the_block_s_own_error_is_kept_with_what_was_recorded(tmp_path: Path):
    with pytest.raises(RuntimeError, match="mine"), innkeeper.record(tmp_path / "t"):
        torch.ones(3, device="managed").add_(1)
        raise RuntimeError("mine")
    assert "O aten::add_" in (tmp_path / "t").read_text(), "what was recorded until then is there"


def test_one_record_at_a_time(tmp_path: Path):
    with innkeeper.record(tmp_path / "outer") as outer:
        torch.ones(3, device="managed").add_(1)
        with pytest.raises(RuntimeError, match="outer is being recorded"):
            innkeeper.record(tmp_path / "inner").__enter__()
        outer.step()
    assert "M step" in (tmp_path / "outer").read_text()
    with pytest.raises(RuntimeError, match="not being recorded"):
        outer.step()


def test_the_traces_script_records_what_replay_plays(
    run_program: RunProgram, run_python: RunProgram, tmp_path: Path
):
    done = run_python(SCRIPT, "--only", "unet", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "unet.trace.gz"
    assert [file.name for file in tmp_path.iterdir()] == [made.name]
    # The one in the repository is this script's: the same operators on the same sizes. (Not the LSTM's: of
    # a layer in bfloat16 PyTorch makes one operator, or many where the CPU has no AVX-512.)
    kept = SCRIPT.parent / made.name
    assert [re.sub(r"\b\d+:", ":", line) for line in lines(made) if line[0] == "O"] == [
        re.sub(r"\b\d+:", ":", line) for line in lines(kept) if line[0] == "O"
    ]
    trace = gzip.decompress(made.read_bytes()).decode()
    played = run_program(PROGRAM, "replay", "-", "--json", "--share", "0.9", input=trace)
    assert played.returncode == 0, played.stderr
    (row,) = json.loads(played.stdout)["rows"]
    assert row["planned"]["seconds"] < row["pager"]["seconds"]
