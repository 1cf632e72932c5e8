"""Fails the n-th call to CUDA of a training step, for every n, on one GPU or two.

    python tests/cuda/cuda_sweep.py WORKLOAD GPUS [EVERY]

Each n begins from the same saved state, and must end as tests/support/python/fault_sweep.py requires. The
step completes with the right result, or raises an error of the GPU (never want of memory). After an error
every element is one that the step gives it, the accounting is right, and the same step gives the right
result. EVERY=7 takes every seventh n.

With `lost` for WORKLOAD the n-th call finds its GPU gone for good: the step ends with an error of the GPU,
and data on the host or on the other GPU is unchanged.
"""

from __future__ import annotations

import collections
import gc
import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support" / "python")]
os.environ["INNKEEPER_TEST_ON"] = "cuda"
os.environ.setdefault("FAKE_CUDA_GPUS", "2")
os.environ.setdefault("FAKE_CUDA_MEMORY", str(256 << 20))

import fake  # noqa: E402
import innkeeper  # noqa: E402
from accelerators import here  # noqa: E402
from fault_sweep import WORKLOADS, Injected, Sweep  # noqa: E402

import torch  # noqa: E402


class CudaCalls(Injected):
    """Failures of any call to the fake runtime."""

    def arm(self, kinds: int, nth: int, more: int = 0) -> None:
        torch.cuda.empty_cache()  # Makes the step allocate from CUDA.
        self.began = fake.ask("calls")
        if nth > 0:
            fake.fail("", nth - 1)

    def disarm(self) -> None:
        fake.ask("cancel_failures")

    def calls(self) -> int:
        return fake.ask("calls") - self.began

    def tells(self, error: Exception) -> bool:
        return "CUDA" in str(error) and not isinstance(error, torch.OutOfMemoryError)


def lose(count: int, nth: int) -> bool:
    """The n-th call finds its GPU gone, for good. Whether the step ended without noticing."""
    gc.collect()
    innkeeper.configure(here(f"sim:{count}x12KiB,host:64MiB"))
    with innkeeper.on(f"cuda:{count - 1}"):
        others = [torch.full((64,), float(i)).to("managed").add_(1) for i in range(4)]
    safe = [torch.full((64,), float(i)).to("managed") for i in range(4)]
    for tensor in safe:
        innkeeper.evict(tensor)
    work = WORKLOADS["tiny"]()
    torch.managed.synchronize()
    fake.fail("", nth - 1, effect=fake.LOST)
    error = None
    try:
        work.step()
    except RuntimeError as raised:
        error = str(raised)
        assert "CUDA" in error and not isinstance(raised, torch.OutOfMemoryError), error
    fake.ask("cancel_failures")
    lost = [gpu for gpu in range(count) if fake.ask("broken", gpu)]
    for i, tensor in enumerate(safe):
        assert torch.equal(tensor.cpu(), torch.full((64,), float(i))), (nth, i, error)
    for i, tensor in enumerate(others):
        where = innkeeper.where(tensor)
        try:
            assert torch.equal(tensor.cpu(), torch.full((64,), float(i + 1))), (nth, i, error)
        except torch.AcceleratorError as gone:
            assert any(f"cuda:{gpu}" in where for gpu in lost), (nth, where, lost, str(gone))
            assert "lost" in str(gone), gone
    innkeeper.manager().check_invariants()
    del work, others, safe, tensor
    gc.collect()
    innkeeper.manager().check_invariants()
    for gpu in range(count):
        fake.ask("repair", gpu)
    return error is None


def lose_everywhere(count: int, every: int) -> None:
    """Loses the GPU at each n-th call until a step makes no n-th call any more."""
    tried, nth = 0, 1
    while True:
        fake.ask("forget_failed_call")
        lose(count, nth)
        if not fake.failed_call():
            break
        tried, nth = tried + 1, nth + every
    assert fake.ask("violations") == 0
    print(json.dumps({"tried": tried, "calls": nth - every}))


def main() -> None:
    workload, count = sys.argv[1], int(sys.argv[2])
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    torch.set_num_threads(1)
    if workload == "lost":
        lose_everywhere(count, every)
        return
    sweep = Sweep(workload, count, CudaCalls())
    calls = sweep.calls(0)
    outcome: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for nth in range(1, calls + 1, every):
        completed = sweep.attempt(0, nth)
        outcome[fake.failed_call()]["passed" if completed else "failed"] += 1
    assert fake.ask("violations") == 0
    print(json.dumps({"calls": calls, "evictions": sweep.evictions, "outcome": outcome}))


if __name__ == "__main__":
    main()
