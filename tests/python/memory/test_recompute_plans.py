"""Plans recompute tensors instead of copying them: by default, to the bit, by repeatable operators."""

from __future__ import annotations

import pytest
from processes import RunProgram

ENCODER = """
import innkeeper
import torch


def encoder(device, width, layers, dropout):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        width, 2, 4 * width, batch_first=True, dropout=dropout, activation="gelu", norm_first=True
    )
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
"""

PLANNED = """
def trained(device):
    model, optimizer = encoder(device, 64, 4, 0.1)
    x = torch.randn(16, 32, 64).to(device)
    losses = []
    for step in range(8):
        torch.manual_seed(step)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


innkeeper.configure("sim:1GiB,host:4GiB")
all_fits = trained("managed")
peak = innkeeper.stats()["nodes"]["sim:0"]["peak"]
for recompute in (False, True):
    innkeeper.configure(f"sim:{int(peak * 0.5)}B,host:4GiB", recompute=recompute)
    assert trained("managed") == all_fits
    stats = innkeeper.stats()
    print(stats["recomputed"], stats["bytes_fetched"], stats["planned_periods"])
"""


def test_a_plan_computes_again_instead_of_copying(run_python: RunProgram) -> None:
    done = run_python("-c", ENCODER + PLANNED)
    assert done.returncode == 0, done.stderr
    without, with_it = (line.split() for line in done.stdout.splitlines())
    assert int(without[0]) == 0
    assert int(with_it[0]) > 20
    assert int(with_it[1]) < int(without[1]), "fewer bytes are fetched"
    assert int(with_it[2]) >= 3, "the periods are followed"


OTHER_BITS = """
import sys

import innkeeper._C

FAULTS = 32  # an operator that is tried again gives other bits
def trained(nodes, faults):
    innkeeper.configure(nodes)
    model, optimizer = encoder("managed", 64, 4, 0.0)
    x = torch.randn(16, 32, 64).to("managed")
    if faults:
        innkeeper._C.inject_faults(FAULTS, 1, 1)  # of the first two kinds
    for step in range(8):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    stats = innkeeper.stats()
    innkeeper._C.inject_faults(0, 0)
    return [p.detach().cpu() for p in model.parameters()], stats


weights, stats = trained("sim:1GiB,host:4GiB", False)
room = f"sim:{stats['nodes']['sim:0']['peak'] // 2}B,host:4GiB"
tight, stats = trained(room, len(sys.argv) > 1)
assert all(map(torch.equal, weights, tight))
print(stats["recomputed"], stats["other_bits"])
"""


def test_a_kind_of_operator_that_gives_other_bits_is_left_out_and_said(run_python: RunProgram) -> None:
    alike = run_python("-c", ENCODER + OTHER_BITS)
    assert alike.returncode == 0, alike.stderr
    recomputed, other_bits = map(int, alike.stdout.split())
    assert recomputed > 20 and other_bits == 0, "by default"
    assert "other bits" not in alike.stderr
    done = run_python("-c", ENCODER + OTHER_BITS, "faults")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "2" and int(done.stdout.split()[0]) < recomputed
    said = [line for line in done.stderr.splitlines() if "other bits" in line]
    assert len(said) == 2 and all("aten::" in line and "Float" in line for line in said), done.stderr


def test_it_can_be_turned_off(run_python: RunProgram) -> None:
    off = run_python("-c", ENCODER + OTHER_BITS, INNKEEPER_RECOMPUTE="off")
    assert off.returncode == 0, off.stderr
    assert off.stdout.split()[0] == "0"


LEFT = """
from torch.utils._python_dispatch import TorchDispatchMode


class StopAt(TorchDispatchMode):
    def __init__(self, operator):
        super().__init__()
        self.left = operator

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.left -= 1
        if self.left == 0:
            raise InterruptedError
        return function(*args, **(kwargs or {}))


def trained(device, every=1):
    # steps that end after each number of operators, beside whole ones
    model, optimizer = encoder(device, 32, 2, 0.0)
    x = torch.randn(8, 32, 32).to(device)
    losses = []

    def step(mode):
        with mode:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())

    for _ in range(8):
        counter = StopAt(0)
        step(counter)
    operators = -counter.left
    for i in range(1, operators, every):
        try:
            step(StopAt(i * 89 % operators))  # not in turn, which would be a program of its own
        except InterruptedError:
            pass
        step(StopAt(0))
    for _ in range(8):
        step(StopAt(0))
    return losses, operators, [p.detach().cpu() for p in model.parameters()]


innkeeper.configure("sim:1GiB,host:4GiB")
trained("managed", every=1000)
peak = innkeeper.stats()["nodes"]["sim:0"]["peak"]
innkeeper.configure(f"sim:{int(peak * 0.6)}B,host:4GiB", recompute=True)
losses, operators, weights = trained("managed")
plain_losses, _, plain = trained("cpu")
assert losses == plain_losses
assert all(map(torch.equal, weights, plain))
innkeeper.manager().check_invariants()
print(operators, *(innkeeper.stats()[name] for name in ("divergences", "recomputed", "planned_periods")))
"""


def test_a_period_that_is_left_at_any_operator_loses_nothing(run_python: RunProgram) -> None:
    done = run_python("-c", ENCODER + LEFT)
    assert done.returncode == 0, done.stderr
    operators, divergences, recomputed, periods = map(int, done.stdout.split())
    assert operators > 200
    assert divergences > 0.9 * operators, "there was no period to leave"
    assert recomputed > operators
    assert periods >= 3, "it is not followed again"


TIMES = """
import innkeeper
import torch

innkeeper.configure("sim:1x10MiB,host:1GiB", recompute=RECOMPUTE)
torch.manual_seed(0)
model = torch.nn.Sequential(*(layer for _ in range(6) for layer in (
    torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)))).to("managed")
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
x = torch.randn(512, 256, device="managed")
for _ in range(12):
    optimizer.zero_grad()
    (model(x) - 1).square().mean().backward()
    optimizer.step()
now = innkeeper.stats()
print(now["recomputed"], now["period"]["kernel_seconds"], now["time_bound"], now["planned_periods"])
"""


def test_recompute_is_not_counted_as_the_programs_own_kernels(run_python: RunProgram) -> None:
    found = {}
    for recompute in ("True", "False"):
        done = run_python("-c", TIMES.replace("RECOMPUTE", recompute))
        assert done.returncode == 0, done.stderr
        found[recompute] = [float(each) for each in done.stdout.split()]
    (again, kernels, bound, periods), (none, expected, _, _) = found["True"], found["False"]
    assert again > 20 and none == 0, "nothing was recomputed"
    assert kernels == pytest.approx(expected, rel=1e-3)
    assert bound <= kernels * 1.2
    assert periods >= 6, "each of the program's counts, though some are scheduled together"
