"""60 experiments in 12 threads on 4 simulated GPUs that together hold a quarter of the memory of all.

Each builds its model inside its experiment, half of them use dropout, and each must end with the weights that
it has when it runs alone.
"""

from __future__ import annotations

import json

from processes import RunProgram

SCRIPT = """
import gc, hashlib, json, threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
import innkeeper
torch.set_num_threads(1)

COUNT, THREADS, STEPS = 60, 12, 6
backward_threads = set()

class Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, gradient):
        backward_threads.add(threading.get_ident())
        return gradient

def experiment(number):
    with innkeeper.experiment(name=f"run {number}"):
        torch_seed = 100 + number
        torch.managed.manual_seed(torch_seed)
        dropout = 0.2 if number % 2 else 0.0
        model = nn.Sequential(nn.Linear(64, 128, device="managed"), nn.ReLU(), nn.Dropout(dropout),
                              nn.Linear(128, 64, device="managed"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        data = torch.Generator().manual_seed(number)
        for _ in range(STEPS):
            x = torch.randn(64, 64, generator=data).to("managed")
            loss = (Seen.apply(model(x)) - x).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        digest = hashlib.sha256()
        for value in model.state_dict().values():
            digest.update(value.cpu().numpy().tobytes())
        return digest.hexdigest()

innkeeper.configure(nodes="sim:1x256MiB,host:1GiB")
alone = []
peak = 0
for number in range(COUNT):
    innkeeper.manager().reset_stats()
    alone.append(experiment(number))
    gc.collect()
    peak = max(peak, innkeeper.stats()["nodes"]["sim:0"]["peak"])
backward_threads.clear()
budget = peak * THREADS // 4 // 4  # 12 run at a time; four nodes together hold a quarter of that
innkeeper.configure(nodes=f"sim:4x{budget}B,host:1GiB")
innkeeper.manager().reset_stats()
with ThreadPoolExecutor(THREADS) as pool:
    together = list(pool.map(experiment, range(COUNT)))
gc.collect()
print(json.dumps({"alone": alone, "together": together, "stats": innkeeper.stats(),
                  "broken": innkeeper._C.check_invariants(),
                  "backward_threads": len(backward_threads)}))
"""


def test_sixty_experiments_in_twelve_threads_equal_running_alone(run_python: RunProgram) -> None:
    done = run_python("-c", SCRIPT, timeout=600, INNKEEPER_SIM="late")
    assert done.returncode == 0, done.stderr[-4000:]
    run = json.loads(done.stdout.splitlines()[-1])
    assert run["broken"] == ""
    assert run["together"] == run["alone"]
    assert len(set(run["alone"])) == len(run["alone"])
    assert run["backward_threads"] >= 6
    for name, row in run["stats"]["nodes"].items():
        assert row["peak"] <= row["budget"], name
        assert row["recount"] == row["resident"], name
        if name.startswith("sim:"):
            assert row["ops"] > 0, name
            assert row["evictions"] > 0, name
