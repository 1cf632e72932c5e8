"""Training that repeats itself, on a node that is too small: plans help, never harm, and change no bit.

Times are the simulator's clock, which is the same on every machine and run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from processes import RunProgram

SCRIPT = """
import gc, hashlib, json, sys
import innkeeper, torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
WIDTH = 96

def layer():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

def bits(kind, device):
    torch.manual_seed(0)
    model = nn.Sequential(*(layer() for _ in range(6)))
    if kind == "frozen":
        for part in list(model)[:2]:
            part.requires_grad_(False)
    model.to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=5, enabled=kind == "scaled")
    data = torch.randn(24, 320 if kind == "wide" else 64, WIDTH)  # else weights are what moves

    def loss_of(rows):
        x = rows.to(device)
        return F.mse_loss(model(x), x.roll(1, -1))

    def step(rows, parts=1):
        optimizer.zero_grad()
        for part in rows.chunk(parts):
            scaler.scale(loss_of(part) / parts).backward()
        if kind == "clipped":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()

    said = []
    for i in range(24):
        rows = data[i]
        if kind == "lengths":
            rows = rows[: (64, 40, 24)[i % 3]]
        elif kind == "short" and i % 6 == 5:
            rows = rows[:17]
        elif kind == "nothing":
            rows = rows[: 8 + (i * 37) % 56]
        elif kind == "scaled" and i % 7 == 5:
            rows = rows * float("inf")  # the optimizer's step is skipped
        step(rows, 4 if kind == "accumulated" else 1)
        if kind == "logged" and i % 4 == 0:
            said.append(loss_of(rows).item())
        if kind == "evaluated" and i % 5 == 4:
            model.eval()
            with torch.no_grad():
                said.append(sum(loss_of(data[j]) for j in range(4)).item())
            model.train()
    if kind == "scaled":
        said.append(scaler.get_scale())
        assert said[-1] < 8 * 2 ** 4, "no step was skipped"
    found = hashlib.sha256(json.dumps(said).encode())
    for p in model.parameters():
        found.update(p.detach().cpu().numpy().tobytes())
    return found.hexdigest()

def managed(kind, planning, recompute=False):
    gc.collect()
    innkeeper.configure("sim:1x5MiB,host:256MiB", planning=planning, recompute=recompute)
    return {"bits": bits(kind, "managed"), **innkeeper.stats()}

kind = sys.argv[1]
plain = {"bits": bits(kind, "cpu")}
on_demand, planned = managed(kind, planning=False), managed(kind, planning=True)
print(json.dumps([plain, on_demand, planned, managed(kind, planning=True, recompute=True)]))
"""

# Reads in a fixed order: no kernel's own memory affects the figure.
SHORT = """
import json
import innkeeper, torch

def fetched(room, periods):
    innkeeper.configure(f"sim:1x{room}B,host:64MiB", planning=True)
    blocks = [torch.full((1 << 16,), float(i), device="managed") for i in range(40)]
    for _ in range(periods):
        for block in blocks:
            block.neg_()
    planned = innkeeper.stats()
    innkeeper.manager().reset_stats()
    for block in blocks:
        block.neg_()
    return innkeeper.stats()["fetches"], planned

room = 6 << 20
_, planned = fetched(room, 40)
short = planned["period"]["bytes_short"]
print(json.dumps([planned, fetched(room + short, 40)[0], fetched(room + short // 2, 40)[0]]))
"""

KINDS = [
    "plain",
    "accumulated",
    "evaluated",
    "logged",
    "short",
    "lengths",
    "clipped",
    "scaled",
    "frozen",
    "wide",
    "nothing",
]


@pytest.mark.parametrize("kind", KINDS)
def test_plans_change_no_bit_and_cost_nothing(run_python: RunProgram, kind: str):
    done = run_python("-c", SCRIPT, kind)
    assert done.returncode == 0, done.stderr
    plain, on_demand, planned, recompute = json.loads(done.stdout)
    assert plain["bits"] == on_demand["bits"] == planned["bits"] == recompute["bits"]
    assert on_demand["evictions"] > 100 and on_demand["planned_periods"] == 0, "the node was large enough"
    ratio = planned["simulated_seconds"] / on_demand["simulated_seconds"]
    print(f"{kind}: {ratio:.3f} of the time without plans, {planned['planned_periods']} periods planned")
    assert ratio <= 1.02
    if kind != "nothing":
        assert planned["planned_periods"] > 2, "hardly anything was planned"
        assert ratio < 0.95, "plans did not help"
    if kind == "wide":
        assert recompute["recomputed"] > 10, "activations that may be recomputed were copied"
    assert recompute["simulated_seconds"] <= 1.02 * planned["simulated_seconds"]


# A model that fits neither the GPU nor the host, and a host that computes.
SPILLED = SCRIPT.replace('"sim:1x5MiB,host:256MiB"', "sys.argv[2]")


@pytest.mark.parametrize("nodes", ["sim:1x5MiB,host:3MiB", "host:7MiB"])
@pytest.mark.parametrize("kind", ["accumulated", "evaluated", "lengths"])
def test_what_goes_on_to_a_disk_is_planned_and_changes_no_bit(
    run_python: RunProgram, kind: str, nodes: str, tmp_path: Path
):
    nodes += f",disk:{tmp_path}:1GiB"
    done = run_python("-c", SPILLED, kind, nodes, INNKEEPER_LOG="info")
    assert done.returncode == 0, done.stderr
    plain, on_demand, planned, recompute = json.loads(done.stdout)
    assert plain["bits"] == on_demand["bits"] == planned["bits"] == recompute["bits"]
    assert planned["planned_periods"] > 2, "hardly anything was planned"
    assert 0 < planned["bytes_from_disk"] < planned["bytes_fetched"] + 1
    said = re.findall(r"planned: .*", done.stderr)
    assert any(
        "go on to the disk" in line if "sim" in nodes else "arrive at host" in line for line in said
    ), said


def test_with_what_is_short_nothing_moves(run_python: RunProgram):
    done = run_python("-c", SHORT)
    assert done.returncode == 0, done.stderr
    planned, fetched_with_it, fetched_with_half = json.loads(done.stdout)
    assert planned["period"]["bytes_short"] > 0 and fetched_with_it == 0 < fetched_with_half
    # The operators compute little: the link (PCIe 4, 25 GB/s) takes longest.
    last = planned["period"]
    assert planned["time_bound"] == pytest.approx(planned["bytes_bound"] / 25e9)
    assert 0 < last["kernel_seconds"] < planned["time_bound"] < last["seconds"]


NAMED = """
import os
os.environ["INNKEEPER_LOG"] = "info"
import innkeeper, torch
from torch import nn

innkeeper.configure("sim:1x5MiB,host:256MiB")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96)) for _ in range(6)))
model.to("managed")[0].requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
print(innkeeper.summary(model, optimizer))
for _ in range(12):
    optimizer.zero_grad()
    x = torch.randn(64, 96, device="managed")
    (model(x) - x).square().mean().backward()
    optimizer.step()
moves = innkeeper._C.planned_moves()
assert sum(bytes_in for bytes_in, _ in moves.values()) == innkeeper.stats()["period"]["bytes_planned"], moves
print(innkeeper.summary(model, optimizer))
print(innkeeper.summary(model))
frozen = [moves.get(innkeeper._C.block_number(p), (0, 0)) for p in model[0].parameters()]
assert frozen[0][0] > 0 and all(bytes_out == 0 for _, bytes_out in frozen), frozen
"""


def test_what_moves_has_the_names_of_modules_and_optimizers(run_python: RunProgram):
    done = run_python("-c", NAMED)
    assert done.returncode == 0, done.stderr
    before, both, model_alone = done.stdout.split("moved in a period, as planned (out: at most):\n")
    assert "exp_avg" not in before, "nothing is planned before the first period"
    lines = {line.split(maxsplit=6)[-1]: line.split()[:5] for line in both.splitlines() if " in  " in line}
    assert lines["5.2.weight"] == ["144.0", "KiB", "in", "144.0", "KiB"]
    assert any(name.startswith("exp_avg_sq of ") for name in lines)
    assert lines["what each period creates"][:2] == ["432.0", "KiB"]
    assert " tensors that nobody named here owns" in model_alone and " nobody named here owns" not in both
    assert " arrive at sim:0 and " in done.stderr and " ms on its link); nothing would, with " in done.stderr
    assert " ms; at this budget no plan takes less than " in both


# The tensor is written, then read: so it must be written back, whichever use is the last.
READ_LAST = """
import innkeeper, torch

innkeeper.configure("sim:1x6MiB,host:64MiB")
blocks = torch.nn.ParameterList([torch.full((1 << 16,), float(i)) for i in range(40)]).to("managed")
with torch.no_grad():
    for number in range(40):
        for block in blocks:
            block.neg_()
            block + block
        if number == 30:
            innkeeper.manager().reset_stats()
written = innkeeper.stats()["bytes_written_back"] / 9  # periods since then
moves = innkeeper._C.planned_moves()
print(written, sum(bytes_out for _, bytes_out in moves.values()))
lists = innkeeper.summary(torch.optim.SGD(blocks)).count("parameter ")
del block, blocks
print(lists, len(innkeeper._C.planned_moves()))


class Odd(torch.optim.SGD):
    pass


odd = Odd([torch.zeros(3, device="managed"), torch.zeros(3)])
for parameter, held in zip(odd.param_groups[0]["params"], ([torch.zeros(2)], torch.zeros(2))):
    odd.state[parameter] = held
assert innkeeper.summary(odd)
"""


def test_what_is_read_after_it_was_written_is_written_back(run_python: RunProgram):
    done = run_python("-c", READ_LAST)
    assert done.returncode == 0, done.stderr
    (written, planned), (listed, left) = (line.split() for line in done.stdout.splitlines())
    assert 0.7 * float(written) < float(planned), "hardly any of it is said to leave"
    assert int(listed) > 5 and int(left) <= 1, "what has died is no longer moved"


def test_a_summary_is_of_modules_and_optimizers(run_python: RunProgram):
    done = run_python("-c", "import innkeeper, torch; innkeeper.summary(torch.zeros(3))")
    assert "expected a module or an optimizer, got Tensor" in done.stderr
