"""CPU tensors that operators move: an unchanged tensor is moved once, a changed one is moved again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import innkeeper
import pytest

import torch
from torch import Tensor

M = "managed"


def moved() -> int:
    """Bytes moved since the last call."""
    found = innkeeper.stats()["moved_from_cpu"]
    innkeeper.manager().reset_stats()
    return found


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Drops copies of other tests, and resets counters."""
    torch.managed.empty_cache()
    moved()


def test_what_does_not_change_is_moved_once() -> None:
    x, mask = torch.ones(8, device=M), torch.arange(8.0)
    for n in range(10):
        assert torch.equal((x * n + mask).cpu(), torch.arange(8.0) + n)
    assert moved() == 32
    half = [(x[:4] + mask[4:]).cpu() for _ in range(3)]  # A new view each time.
    assert torch.equal(half[2], torch.arange(4.0, 8.0) + 1) and moved() == 16


WRITES: dict[str, Callable[[Tensor], object]] = {
    "in place": lambda x: x.add_(1),
    "an element": lambda x: x.__setitem__(3, 77.0),
    "through numpy": lambda x: x.numpy().__setitem__(3, 77.0),
    "through data": lambda x: x.data.fill_(5),
    "through a view": lambda x: x[2:5].zero_(),
    "by set_": lambda x: x.set_(torch.full((8,), 9.0)),
    "by an operator with a managed operand": lambda x: x.mul_(torch.full((8,), 3.0, device=M)),
    "as another shape": lambda x: x.resize_(2, 4),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_has_changed_is_moved_again(write: str) -> None:
    changing = torch.arange(8.0)
    for _ in range(3):
        x = torch.ones_like(changing, device=M)
        assert torch.equal((x + changing).cpu(), changing + 1)
        WRITES[write](changing)
    x = torch.ones_like(changing, device=M)
    assert torch.equal((x + changing).cpu(), changing + 1)


def test_large_tensors_are_kept_from_their_second_move_on() -> None:
    x, large = torch.ones(1, device=M), torch.ones(1 << 19)
    for _ in range(5):
        x + large
    assert moved() == 2 * large.nbytes


def test_copies_go_with_their_tensors() -> None:
    x = torch.ones(1000, device=M)
    before = torch.managed.memory_allocated()
    mask = torch.ones(1000)
    x + mask
    assert torch.managed.memory_allocated() >= before + 4000
    del mask
    gc.collect()
    assert torch.managed.memory_allocated() == before
    kept = torch.ones(1000)
    x + kept
    torch.managed.empty_cache()
    assert torch.managed.memory_allocated() == before


def test_many_tensors_leave_little(configure: Callable[[str], None]) -> None:
    configure("sim:1x1MiB,host:15MiB")
    x = torch.ones(1024, device=M)
    alive = [torch.full((1024,), float(n)) for n in range(2000)]
    for n, each in enumerate(alive):
        assert (x + each)[7].item() == n + 1
    used = sum(node["resident"] for node in innkeeper.stats()["nodes"].values())
    assert used <= (1 << 20) + (1 << 16)
    del alive, each, x
    configure("sim:1x1MiB,host:16MiB")  # Refused while managed memory is alive.
    torch.ones(1, device=M) + torch.ones(4)
    configure("sim:1x1MiB,host:15MiB")


def test_threads_share_a_copy() -> None:
    mask = torch.arange(500.0)

    def work(n: int) -> bool:
        x = torch.full((500,), float(n), device=M)
        return all(torch.equal((x + mask).cpu(), mask + n) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert moved() <= 4 * mask.nbytes


def test_copies_take_a_small_part_of_small_nodes(configure: Callable[[str], None]) -> None:
    configure("sim:1MiB,host:15MiB")
    one = torch.ones(1 << 15, device=M)
    kept = [torch.full((1 << 15,), float(i)) for i in range(40)]  # 5 MiB
    for x in kept:
        assert (one + x)[3].item() == x[3] + 1
    resident = sum(node["resident"] for node in innkeeper.stats()["nodes"].values())
    assert resident <= (1 << 20) + 4 * one.nbytes, "a sixteenth of the budgets"
    del one
    torch.managed.empty_cache()
