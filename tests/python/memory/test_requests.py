"""Requests about bytes' places, while other threads use them: none changes a bit or waits for itself."""

from __future__ import annotations

import copy
import gc
import signal
import threading
import time
from collections.abc import Callable

import innkeeper
import pytest
from budget_fixture import same

import torch
from torch import nn

MIB = 1 << 20


def test_host_memory_is_flat_while_a_tensor_goes_to_and_fro():
    x = torch.zeros(MIB // 4, device="managed")
    innkeeper.manager().reset_stats()
    before = innkeeper.stats()["nodes"]["host"]["resident"]
    # No code here reads statistics, which would free parked memory.
    for _ in range(400):
        innkeeper.evict(x)
        x.add_(1)
    assert innkeeper.stats()["nodes"]["host"]["peak"] - before <= 8 * MIB
    assert x.sum().item() == 400 * MIB // 4


def test_host_memory_is_flat_over_a_training():
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6))).to("managed")  # 6 MiB
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(64, 512).to("managed")
    manager = innkeeper.manager()

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    budgets = {name: manager.budget(name) for name in ("sim:0", "sim:1")}
    try:
        for name in budgets:
            manager.set_budget(name, 6 * MIB)
        step()
        peaks = []
        for _ in range(4):
            manager.reset_stats()
            for _ in range(8):
                step()
            peaks.append(innkeeper.stats()["nodes"]["host"]["peak"])
        assert innkeeper.stats()["evictions"] > 0
        assert max(peaks) <= 48 * MIB, peaks  # Four times 6 MiB, and the moves in flight.
        assert peaks[-1] <= 1.2 * peaks[0], peaks
    finally:
        for name, nbytes in budgets.items():
            manager.set_budget(name, nbytes)


def write_under_hints(home: str, to: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor that a loop writes at ``home`` while another thread prefetches it, and its expected value."""
    plain = torch.arange(float(MIB // 4))
    x = plain.to("managed")
    stop = threading.Event()

    def hint() -> None:
        while not stop.is_set():
            innkeeper.prefetch(x, to)
            innkeeper.manager().check_invariants()

    thread = threading.Thread(target=hint)
    thread.start()
    try:
        with innkeeper.on(home):
            for _ in range(150):
                x.mul_(1.0001).add_(1)
                plain.mul_(1.0001).add_(1)
    finally:
        stop.set()
        thread.join()
    return x, plain


@pytest.mark.parametrize("to", ["sim:1", "host"])
def test_a_hint_while_another_thread_writes_changes_no_bit(to: str):
    assert same(*write_under_hints("sim:0", to))


def test_a_hint_to_a_disk_while_another_thread_writes(configure: Callable[[str], None]):
    configure("host:64MiB,disk:/tmp:64MiB")
    assert same(*write_under_hints("host", "disk"))


def test_whoever_would_wait_for_himself_is_told_at_once():
    x = torch.ones(1000, device="managed")
    start = time.monotonic()
    with innkeeper.resident(x, "host") as real:
        with pytest.raises(ValueError, match=r"this thread works on the block itself at host .*resident\(\)"):
            x.add_(1)
        assert real.sum().item() == 1000
        assert (x + 1).sum().item() == 2000  # Reading needs no wait.
    with pytest.raises(ValueError, match="real memory at host is still held by somebody"):
        x.add_(1)
    del real
    with innkeeper.resident(x, "sim:0", write=True) as real:
        for request in (
            lambda: innkeeper.prefetch(x, "sim:1"),
            lambda: innkeeper.evict(x),
            lambda: innkeeper.resident(x, "host").__enter__(),
        ):
            with pytest.raises(ValueError, match=r"resident\(\) first"):
                request()
        real.fill_(3)
    assert time.monotonic() - start < 20
    assert x.add_(1).sum().item() == 4000


def exchange_data(module: nn.Linear) -> None:
    module.weight.data = torch.ones(3, 3, device="managed")


def assign_state(module: nn.Linear) -> None:
    module.load_state_dict({name: x.clone() for name, x in module.state_dict().items()}, assign=True)


def swap(module: nn.Linear) -> None:
    torch.utils.swap_tensors(module.weight, nn.Parameter(torch.ones(3, 3, device="managed")))


def to_cpu(module: nn.Linear) -> None:
    module.cpu()


def shrink(module: nn.Linear) -> None:
    module.weight.untyped_storage().resize_(0)


def grow(module: nn.Linear) -> None:
    module.weight.detach().resize_(100)


@pytest.mark.parametrize("change", [exchange_data, assign_state, swap, to_cpu, shrink, grow])
def test_a_resident_tensor_is_released_whatever_became_of_it(change: Callable[[nn.Linear], None]):
    """A second look-up by the tensor released another block's hold, or ended the process."""
    module = nn.Linear(3, 3, device="managed")
    kept = module.weight.detach()
    with innkeeper.resident(module, "sim:0"):
        change(module)
    if change is not shrink:
        innkeeper.evict(kept)
        assert kept.sum().isfinite()
    innkeeper.evict(torch.nn.ParameterList([p for p in module.parameters() if p.device.type == "managed"]))
    assert all(node["pinned"] == 0 for node in innkeeper.stats()["nodes"].values())


def test_an_exception_of_a_signal_leaves_nothing_resident():
    module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(8))).to("managed")

    def interrupt(*_: object) -> None:
        if armed:
            armed.clear()
            raise InterruptedError

    armed: list[bool] = []
    interrupts = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for wait in range(300):
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, 5e-5 + wait % 97 * 2e-5)
                while armed:
                    with innkeeper.resident(module):
                        pass
            except InterruptedError:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100
    gc.collect()  # tracebacks
    innkeeper.evict(module)


def test_what_is_pinned_to_the_host_is_written_there():
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to("managed")
    expected = copy.deepcopy(layers).cpu()
    innkeeper.pin(layers[0], "host")
    for model in (expected, layers):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 8, device=model[0].weight.device)).square().sum().backward()
            optimizer.step()
    assert all(same(x, y) for x, y in zip(layers.parameters(), expected.parameters(), strict=True))
    assert innkeeper.where(layers[0].weight)[0] == "host"
    innkeeper.unpin(layers[0])


def test_unpin_takes_back_the_last_pin():
    x = torch.ones(10, device="managed")
    innkeeper.pin(x, "sim:1")
    innkeeper.pin(x, "sim:0")
    innkeeper.unpin(x)
    with pytest.raises(ValueError, match="pinned at sim:1"):
        innkeeper.evict(x)
    assert "sim:1" in innkeeper.where(x)
    innkeeper.unpin(x)
    innkeeper.evict(x)
