"""Scripts made for CUDA run unmodified on the managed device, to the losses of the CPU, in less memory."""

from __future__ import annotations

import hashlib
import re

import pytest
from managed_scripts import AMPLE, SCRIPTS, Scripts
from torchrun import past_gloo

# Name, simulated GPUs, and how far a loss may be from the CPU's: 0 is bit for bit, where the arithmetic is
# the same. In mixed precision it is not: autocast is off in the CPU's run.
RUNS = [
    ("image_classifier", 1, 0),
    ("gpt_amp", 1, 0.02),
    ("gan", 1, 0),
    ("vae", 1, 0),
    ("dqn", 1, 0),
    ("diffusion", 1, 0),
    ("lstm_lm", 1, 0),
    ("finetune", 1, 0),
    ("model_parallel", 2, 0),
    ("streams", 1, 0),
    # clip_grad_norm_() takes the gradients' norms GPU by GPU, in the order of an unordered map. On the CPU it
    # is the order of the parameters, so the norm of all may differ in its last bit.
    ("pipeline_adam", 2, 1e-5),
    ("pipeline_micro_batches", 4, 0),
    ("data_parallel_criterion", 2, 0),
    ("seq2seq_attention", 2, 0),
    ("gradcheck_gpus", 2, 0),
    ("replicate_by_hand", 4, 0),
    ("ensemble", 4, 0),
    ("device_map", 4, 0),
    ("wgan_two_gpus", 2, 0),
    ("evaluate_copies", 2, 0),
]


def losses(text: str) -> list[str]:
    """Output of a script without its speed, which Trainer prints too."""
    return [line for line in text.splitlines() if "per_second" not in line]


def numbers(text: str) -> list[float]:
    return [float(word) for word in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


@pytest.mark.parametrize(("name", "gpus", "tolerance"), RUNS, ids=[run[0] for run in RUNS])
def test_a_script_trains_unmodified_at_60_percent_of_its_peak(
    scripts: Scripts, name: str, gpus: int, tolerance: float
):
    script = SCRIPTS / f"{name}.py"
    before = hashlib.sha256(script.read_bytes()).hexdigest()
    plain = scripts.python(str(script))
    assert plain.returncode == 0, plain.stderr
    ample, needed = scripts.managed(AMPLE.format(gpus), str(script))
    assert ample.returncode == 0, ample.stderr
    peaks = [needed["nodes"][f"sim:{i}"]["peak"] for i in range(gpus)]
    assert min(peaks) > 0 and needed["evictions"] == 0, needed
    if tolerance:
        assert numbers(ample.stdout) == pytest.approx(numbers(plain.stdout), rel=tolerance)
    else:
        assert losses(ample.stdout) == losses(plain.stdout)
    budgets = [int(0.6 * peak) // 64 * 64 for peak in peaks]
    nodes = ",".join(f"sim:{budget}B" for budget in budgets)
    tight, used = scripts.managed(f"{nodes},host:1GiB", str(script))
    assert tight.returncode == 0, tight.stderr
    assert losses(tight.stdout) == losses(ample.stdout)
    assert "runs on the host" not in tight.stderr
    assert used["evictions"] > 0 and used["fetches"] > 0, used
    for i, budget in enumerate(budgets):
        assert used["nodes"][f"sim:{i}"]["peak"] <= budget
    assert hashlib.sha256(script.read_bytes()).hexdigest() == before


def test_a_script_of_two_processes_trains_by_nccl_s_name_at_60_percent_of_its_peak(scripts: Scripts):
    script = str(SCRIPTS / "ddp_nccl.py")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    plain = past_gloo(lambda: scripts.python(*torchrun))
    assert plain.returncode == 0, plain.stderr
    ample, needed = scripts.managed(AMPLE.format(1), *torchrun)
    assert ample.returncode == 0, ample.stderr
    assert ample.stdout == plain.stdout
    budget = int(0.6 * needed["nodes"]["sim:0"]["peak"]) // 64 * 64
    tight, used = scripts.managed(f"sim:{budget}B,host:1GiB", *torchrun)
    assert tight.returncode == 0, tight.stderr
    assert tight.stdout == plain.stdout
    assert used["evictions"] > 0 and used["nodes"]["sim:0"]["peak"] <= budget
