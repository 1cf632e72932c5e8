"""INNKEEPER_SIM=data=off: machines and models larger than this machine, by shapes alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import RunProgram

PRELUDE = """
import json, resource, sys
sys.path.insert(0, "tests/support/python")
import torch, innkeeper, models
from torch import nn
"""

# Each training in one process: its losses and times, and the memory in use at the end.
TRAIN_ALL = """
done = {}
for name, train in models.TRAININGS.items():
    before = innkeeper.stats()["simulated_seconds"]
    innkeeper.manager().reset_stats()
    losses, weights = train("managed", 2)
    stats = innkeeper.stats()
    peak = stats["nodes"]["sim:0"]["peak"]
    done[name] = [stats["ops"], round(stats["simulated_seconds"] - before, 9), peak, losses, weights]
    innkeeper.manager().check_invariants()
print(json.dumps(done))
"""

# 6.7 billion parameters: 27 GB of weights, as many of gradients, and twice that of AdamW's state.
TRAIN_LARGE = """
with torch.device("managed"):
    model = models.Gpt(width=4096, layers=32, vocabulary=50304, tied=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(2):
    batch = torch.randint(0, 100, (8, 64)).to("managed")
    loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
stats = innkeeper.stats()
gpu = stats["nodes"]["sim:0"]
assert sum(p.nbytes for p in model.parameters()) > 24 << 30
assert stats["evictions"] > 0 and stats["bytes_fetched"] > 24 << 30
assert gpu["peak"] <= gpu["budget"] and gpu["recount"] == gpu["resident"]
assert stats["nodes"]["host"]["peak"] > 1 << 30
innkeeper.manager().check_invariants()
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20, "KiB of real memory"
print(stats["simulated_seconds"])
"""

READS_ARE_ZEROS = """
x = torch.full((3, 5), 7.0, device="managed")
assert x.sum().item() == 0 and not x.tolist()[2][4] and x.cpu().eq(0).all() and torch.equal(x, x + 1)
assert x.t().double().cpu().stride() == (1, 5)
y = torch.ones(5).to("managed")  # a copy into it moves nothing
assert torch.equal(y.cpu(), torch.zeros(5))
innkeeper.evict(x)
assert innkeeper.where(x) == ["host"]
assert x.sum().item() == 0
assert str(x[0]) == "tensor([0., 0., 0., 0., 0.], device='managed:0')", x[0]
z = torch.arange(6, device="managed").view(2, 3)[:, 1:]
z += 1
assert z.cpu().shape == (2, 2)
out = torch.empty(0, device="managed")
torch.add(x, x, out=out)
assert out.shape == (3, 5) and out.untyped_storage().nbytes() == 60
x.resize_(100, 100)
assert x[torch.tensor([1, 2])].shape == (2, 100)  # indices may be on the CPU
"""

REFUSED = """
x = torch.ones(4, device="managed")
def line(function):
    try:
        function()
    except Exception as error:
        print(f"{type(error).__name__}: {error}".splitlines()[0])
    else:
        sys.exit("was done")
line(lambda: x.nonzero())
line(lambda: torch.masked_select(x, x > 0))
line(lambda: x[x > 0])
line(lambda: x.to_sparse())
innkeeper.evict(x)
line(lambda: innkeeper.resident(x, "host", write=True).__enter__())
innkeeper.manager().check_invariants()
"""


# Every operator that PyTorch knows how to sample, on a machine without data: the shapes, or a clear refusal.
ALL_OPERATORS = """
import warnings
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map
warnings.simplefilter("ignore")
def shapes(result):
    return [x.shape for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
def move(x):
    return x.to("managed") if isinstance(x, torch.Tensor) else x
tried, refused, others = 0, {}, {}
for op in op_db:
    if torch.float32 not in op.dtypes or op.name.startswith("jiterator"):
        continue
    tried += 1
    for sample in list(op.sample_inputs("cpu", torch.float32))[:3]:
        arguments = (sample.input, *sample.args)
        expected = shapes(op(*arguments, **sample.kwargs))
        try:
            given = op(*tree_map(move, arguments), **tree_map(move, sample.kwargs))
            [x.cpu() for x in tree_leaves(given) if isinstance(x, torch.Tensor)]
            if shapes(given) != expected:
                others[op.formatted_name] = f"{shapes(given)}, expected {expected}"
        except NotImplementedError as error:
            refused[op.formatted_name] = str(error)
        except Exception as error:
            others[op.formatted_name] = f"{type(error).__name__}: {error}"
innkeeper.manager().check_invariants()
print(json.dumps([tried, refused, others]))
"""

NOT_AS_WITH_DATA = {
    # Evaluating gives statistics of a size that CPU kernels leave empty.
    "_native_batch_norm_legit",
    "native_batch_norm",
    "as_strided_partial_views",  # Reaches beyond the end of a copy's storage.
    "tensor_split",  # Needs indices on the CPU, as on CUDA.
}


def run(run_python: RunProgram, script: str, sim: str, nodes: str, directory: Path, *arguments: str) -> str:
    program = directory / "program.py"
    program.write_text(f"import os\nos.environ['INNKEEPER_SIM'] = {sim!r}\n{PRELUDE}{script}")
    done = run_python(str(program), *arguments, nodes=nodes)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_same_operators_take_the_same_time_as_with_data(run_python: RunProgram, tmp_path: Path):
    nodes = "sim:1GiB,host:1GiB"
    real = json.loads(run(run_python, TRAIN_ALL, "early", nodes, tmp_path))
    blank = json.loads(run(run_python, TRAIN_ALL, "early,data=off", nodes, tmp_path))
    for name, (ops, seconds, peak, losses, weights) in real.items():
        assert any(losses) and not any(blank[name][3]) and blank[name][4] != weights, name
        # Memory that kernels allocate for themselves is not charged without data.
        assert 0.5 * peak < blank[name][2] <= peak, name
        # Its scaler reads the gradients to decide whether it skips the step.
        if name != "mlp-autocast":
            assert blank[name][0] == ops, name
            # A kernel's own workspace, which an LSTM's gives back, may have no shape.
            assert blank[name][1] == pytest.approx(seconds, rel=0.01), name


def test_a_model_and_a_machine_larger_than_this_one(run_python: RunProgram, tmp_path: Path):
    slow = float(run(run_python, TRAIN_LARGE, "data=off,gpu=H100", "sim:64GiB,host:2TiB", tmp_path))
    fast = float(
        run(run_python, TRAIN_LARGE, "data=off,gpu=H100,link=NVLink 4", "sim:64GiB,host:2TiB", tmp_path)
    )
    assert fast < slow


def test_what_is_read_is_zeros(run_python: RunProgram, tmp_path: Path):
    run(run_python, READS_ARE_ZEROS, "data=off", "sim:2x1GiB,host:1GiB", tmp_path)


def test_operators_give_the_right_shapes_or_refuse(run_python: RunProgram, tmp_path: Path):
    tried, refused, others = json.loads(
        run(run_python, ALL_OPERATORS, "data=off,early", "sim:4GiB,host:4GiB", tmp_path).splitlines()[-1]
    )
    assert tried > 600
    assert len(refused) < 25, refused
    for name, line in refused.items():
        assert "INNKEEPER_SIM has off" in line or "no fake impl or Meta kernel" in line, (name, line)
    assert set(others) <= NOT_AS_WITH_DATA, others


def test_what_depends_on_data_is_refused(run_python: RunProgram, tmp_path: Path):
    needs = "needs data, which INNKEEPER_SIM has off: its result's shape depends on it"
    assert run(run_python, REFUSED, "data=off", "sim:1GiB,host:1GiB", tmp_path).splitlines() == [
        f"NotImplementedError: aten::nonzero {needs}",
        f"NotImplementedError: aten::masked_select {needs}",
        f"NotImplementedError: aten::index {needs}",
        "NotImplementedError: aten::_to_sparse needs data, which INNKEEPER_SIM has off:"
        " sizes of sparse and nested tensors depend on it",
        "ValueError: resident: the host has no memory to write to while INNKEEPER_SIM has data off",
    ]


NODES_THAT_NEED_DATA = {
    "host:1GiB": "no simulated node is named, and nothing else works without data, which INNKEEPER_SIM has"
    " off; name one, as in sim:8x80GiB,host:1TiB",
    "sim:1GiB,disk:/tmp:1GiB": "disk needs data, which INNKEEPER_SIM has off; sim and host nodes need none",
    "sim:1GiB,cuda:0": "cuda:0 needs data, which INNKEEPER_SIM has off; sim and host nodes need none",
    "sim:2x40TiB": '"sim:2x40TiB": the simulated nodes need 80.0 TiB, but this process may use 64.0 TiB of'
    " addresses; write a smaller size",
}

TRY_NODES = """
for nodes in json.loads(sys.argv[1]):
    try:
        innkeeper.configure(nodes)
    except ValueError as error:
        print(error)
"""


def test_nodes_that_need_data_are_refused(run_python: RunProgram, tmp_path: Path):
    said = run(
        run_python, TRY_NODES, "data=off", "sim:1GiB", tmp_path, json.dumps(list(NODES_THAT_NEED_DATA))
    )
    assert said.splitlines() == [f"INNKEEPER_NODES: {line}" for line in NODES_THAT_NEED_DATA.values()]
