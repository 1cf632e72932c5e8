"""Each example runs as a user would run it, small; the examples assert their claims."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from documented_commands import SMALL
from processes import RunProgram
from torchrun import launcher, past_gloo


def run_example(run_python: RunProgram, name: str, *arguments: str, **options: str) -> str:
    done = run_python(f"examples/{name}.py", *arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_different_device_tensors(run_python: RunProgram):
    out = run_example(run_python, "different_device_tensors")
    assert "x + y is on sim:" in out


def test_thread_pool_experiments(run_python: RunProgram):
    out = run_example(run_python, "thread_pool_experiments", "--experiments", "24", "--steps", "8")
    assert "the same bits" in out


def test_pde_solver(run_python: RunProgram):
    out = run_example(run_python, "pde_solver", "--points", "12")
    assert "sweep 1, system 7" in out


@pytest.mark.parametrize("nodes", ["sim:1x1MiB,host:1GiB", "sim:2x768KiB,host:1GiB", "host:1GiB"])
def test_train_text_gives_the_same_weights_as_plain_pytorch(
    run_python: RunProgram, nodes: str, tmp_path: Path
):
    results = []
    for device in ("cpu", "managed"):
        path = tmp_path / f"{device}.json"
        run_example(
            run_python,
            "train_text",
            "--device",
            device,
            "--steps",
            "6",
            *SMALL,
            "--result",
            str(path),
            nodes=nodes,
        )
        results.append(json.loads(path.read_text()))
    plain, managed = results
    assert plain["losses"] == managed["losses"] and plain["sha256"] == managed["sha256"]
    assert len(plain["losses"]) == 6 and plain["losses"][-1] < plain["losses"][0]


def test_demo_fails_in_one_line_when_the_loss_does_not_fall(run_python: RunProgram, tmp_path: Path):
    page = str(tmp_path / "page.html")
    done = run_python(
        "examples/demo.py", "--simulate", "--steps", "2", "--page", page, *SMALL, "--lr", "1e-9"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("demo failed: the last loss")


PLAIN_RUNS = """
import sys
sys.path.insert(0, "examples")
import demo
kept = {"nodes": {"sim:0": {"peak": 8}}}
def run(name, device, training, nodes=""):
    return {"name": name, "sha256": hashes[device].pop(0), "stats": kept}
demo.run = run
for plain in (["right"], ["other", "right"], ["other", "other"]):
    hashes = {"cpu": plain, "managed": ["right", "right"]}
    print([run["sha256"] for run in demo.three_runs(demo.parse(["--simulate"]))], plain)
hashes = {"cpu": ["right"], "managed": ["right", "other"]}
print([run["sha256"] for run in demo.three_runs(demo.parse(["--simulate"]))])
"""


def test_demo_asks_plain_pytorch_again_before_it_says_that_bits_differ(run_python: RunProgram):
    """Plain runs gave other bits once in some hundreds, on a busy machine."""
    said = run_python("-c", PLAIN_RUNS).stdout.splitlines()
    assert said == [
        "['right', 'right', 'right'] []",
        "Two runs of plain PyTorch differ, other and right: the second is compared with.",
        "['right', 'right', 'right'] []",
        "['other', 'right', 'right'] []",
        "['right', 'right', 'other']",
    ]


def test_ddp_gives_the_same_weights_as_on_the_cpu(run_program: RunProgram):
    hashes = set()
    innkeeper = str(Path(sys.executable).with_name("innkeeper"))
    ours = [innkeeper, "run", "--python", sys.executable, "--nproc", "2", "--"]
    for device, nodes, start in (
        ("cpu", "host:1GiB", launcher()),
        ("managed", "sim:1x1MiB,host:1GiB", launcher()),
        ("managed", "sim:2x1MiB,host:1GiB", ours),
    ):
        words = ["examples/ddp.py", "--device", device, "--steps", "4", "--dropout", "0", *SMALL]
        run = partial(run_program, *start, *words, nodes=nodes)
        done = past_gloo(run) if device == "cpu" else run()
        assert done.returncode == 0, done.stdout + done.stderr
        hashes.add(done.stdout.splitlines()[-1])
    assert len(hashes) == 1 and "2 processes, weights " in hashes.pop()
