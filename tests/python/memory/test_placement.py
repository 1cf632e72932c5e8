"""The verbs on tensors and modules: where, pin, prefetch, evict, resident, on, experiment, get_device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import innkeeper
import pytest
from processes import wait_until

import torch
from torch import Tensor, nn


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)).to("managed")


def test_get_device_is_where_tensors_go():
    x = torch.zeros(2, device=innkeeper.get_device())
    assert x.device == torch.device("managed", 0) and x.get_device() == 0


def test_where_of_what_was_never_written_is_nowhere():
    assert innkeeper.where(torch.empty(10, device="managed")) == []


def test_on_places_tensors_and_results_stay_there():
    for node in ("sim:0", "sim:1", "sim:0"):
        with innkeeper.on(node) as name:
            x = torch.ones(100, device="managed")
        assert name == node and innkeeper.where(x) == [node]
        assert innkeeper.where(x * 2) == [node]
        moved = torch.ones(100)
        with innkeeper.on(node):
            assert innkeeper.where(moved.to("managed")) == [node]


def test_on_nests_and_ends_with_an_exception():
    with innkeeper.on("sim:0"):
        with pytest.raises(KeyError), innkeeper.on("sim:1"):
            raise KeyError
        assert innkeeper.where(torch.ones(3, device="managed")) == ["sim:0"]


def test_unknown_nodes_are_refused_with_the_names_that_there_are():
    x = torch.ones(3, device="managed")
    for verb in (innkeeper.pin, innkeeper.prefetch):
        with pytest.raises(ValueError, match="sim:7") as error:
            verb(x, "sim:7")
        assert "sim:1" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(ValueError, match="sim:7"), innkeeper.on("sim:7"):
        pass
    with pytest.raises(ValueError, match="sim:7"), innkeeper.resident(x, "sim:7"):
        pass


def test_evict_moves_to_the_host_and_the_next_use_fetches():
    x = torch.arange(1000.0, device="managed")
    before = innkeeper.stats()
    innkeeper.evict(x)
    assert innkeeper.where(x) == ["host"]
    assert (x + 1).sum().item() == 500500
    assert innkeeper.where(x)[0].startswith("sim:")
    after = innkeeper.stats()
    assert after["evictions"] == before["evictions"] + 1 and after["fetches"] == before["fetches"] + 1
    assert after["bytes_fetched"] - before["bytes_fetched"] == 4000


def test_prefetch_fetches_a_module_to_a_node():
    module = net()
    innkeeper.evict(module)
    assert {tuple(places) for places in innkeeper.where(module).values()} == {("host",)}
    innkeeper.prefetch(module, "sim:1")
    torch.managed.synchronize()
    before = innkeeper.stats()
    with innkeeper.resident(module, "sim:1"):
        assert all("sim:1" in places for places in innkeeper.where(module).values())
    # All tensors were present.
    assert innkeeper.stats()["bytes_fetched"] == before["bytes_fetched"]


def test_a_prefetched_copy_is_named_before_its_first_use():
    x = torch.ones(1 << 18, device="managed")
    innkeeper.evict(x)
    innkeeper.prefetch(x, "sim:1")
    torch.managed.synchronize()
    wait_until(lambda: "sim:1" in innkeeper.where(x))


def test_pinned_bytes_do_not_move_if_others_need_space():
    x = torch.ones(1 << 18, device="managed")
    innkeeper.pin(x, "sim:1")
    assert "sim:1" in innkeeper.where(x)
    with pytest.raises(ValueError, match="pinned"):
        innkeeper.evict(x)
    others = []
    with innkeeper.on("sim:1"):
        for _ in range(20):
            others.append(torch.ones(1 << 18, device="managed"))
    assert innkeeper.stats()["nodes"]["sim:1"]["pinned"] == 1 << 20
    assert "sim:1" in innkeeper.where(x)
    innkeeper.unpin(x)
    innkeeper.evict(x)
    assert innkeeper.where(x) == ["host"]


def test_pins_count():
    x = torch.ones(4, device="managed")
    innkeeper.pin(x)
    innkeeper.pin(x)
    innkeeper.unpin(x)
    with pytest.raises(ValueError, match="pinned"):
        innkeeper.evict(x)
    innkeeper.unpin(x)
    innkeeper.evict(x)


def test_a_module_that_fits_in_part_stays_unpinned():
    module = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(5)).to(
        "managed"
    )  # 5 x 4 MiB in 16 MiB
    with pytest.raises(torch.OutOfMemoryError, match="sim:0"):
        innkeeper.pin(module, "sim:0")
    assert innkeeper.stats()["nodes"]["sim:0"]["pinned"] == 0
    innkeeper.evict(module)


def test_resident_says_what_it_cannot_give():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="managed")
    with pytest.raises(TypeError, match=r"nested tensor's bytes are those of x.values\(\); name these"):
        innkeeper.resident(nested).__enter__()
    with innkeeper.resident(nested.values()) as real:
        assert real.shape == (5,)
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8).to("managed")
    with pytest.raises(TypeError, match=r"x.int_repr\(\) is one of its integers"):
        innkeeper.resident(quantized).__enter__()


def test_resident_gives_the_real_tensor_and_keeps_writes():
    x = torch.arange(6.0, device="managed").view(2, 3).t()
    with innkeeper.resident(x) as real:
        assert real.device.type != "managed" and real.shape == x.shape and real.stride() == x.stride()
        real.add_(0)
    del real  # A kept reference would keep its replica in place.
    with innkeeper.resident(x, "host", write=True) as real:
        assert real.device.type == "cpu"
        real.mul_(10)
    assert x.tolist() == [[0, 30], [10, 40], [20, 50]]
    module = nn.Linear(2, 2).to("managed")
    with innkeeper.resident(module, "host") as real:
        assert set(real) == {"weight", "bias"} and real["bias"].device.type == "cpu"


def test_verbs_refuse_what_is_not_managed():
    with pytest.raises(ValueError, match="is on cpu"):
        innkeeper.where(torch.ones(1))
    with pytest.raises(ValueError, match="'weight' of the module is on cpu"):
        innkeeper.pin(nn.Linear(1, 1))
    with pytest.raises(TypeError, match="expected a tensor or a module, got list"):
        innkeeper.evict([torch.ones(1)])


def test_experiments_have_streams_of_their_own():
    def draw(seed: int) -> torch.Tensor:
        with innkeeper.experiment():
            torch.managed.manual_seed(seed)
            return torch.cat([torch.rand(5, device="managed") for _ in range(20)]).cpu()

    alone = [draw(seed) for seed in range(4)]
    torch.manual_seed(9)
    expected = torch.rand(3, device="managed")
    together: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda n=n: together.update({n: draw(n)})) for n in range(4)]
    torch.manual_seed(9)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The process's stream is unchanged.
    assert torch.equal(torch.rand(3, device="managed"), expected)
    assert all(torch.equal(alone[n], together[n]) for n in range(4))


def test_experiments_spread_over_the_nodes():
    homes = set()
    barrier = threading.Barrier(2)

    def place() -> None:
        with innkeeper.experiment("spread", memory=1 << 20):
            x = torch.ones(1 << 16, device="managed")
            barrier.wait()
            homes.add(innkeeper.where(x)[0])

    threads = [threading.Thread(target=place) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert homes == {"sim:0", "sim:1"}


def test_experiments_spread_by_the_memory_they_ask_for():
    def home() -> str:
        return innkeeper.where(torch.ones(3, device="managed"))[0]

    def in_a_thread(memory: int, inside: list[int]) -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(enter, [memory, *inside]).result()

    def enter(memories: list[int]) -> list[str]:
        with innkeeper.experiment(memory=memories[0] << 20):
            return [home(), *(in_a_thread(memories[1], memories[2:]) if len(memories) > 1 else [])]

    # Two nodes of 16 MiB: the large one has a node for itself, although more experiments are on the other.
    large, *small = in_a_thread(12, [5, 5, 5])
    assert large not in small and len(set(small)) == 1


def test_experiments_are_named():
    with innkeeper.experiment("mine") as name:
        assert name == "mine"
    with innkeeper.experiment() as first, innkeeper.experiment() as second:
        assert first != second


class _BornInBackward(torch.autograd.Function):
    """Records in backward the thread, the node of a new tensor without operands, the stream's numbers."""

    seen: ClassVar[list[tuple[int, list[str], Tensor]]] = []

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        born = torch.rand(16, device="managed")
        _BornInBackward.seen.append((threading.get_ident(), innkeeper.where(born), born.cpu()))
        return gradient


@pytest.mark.parametrize("node", ["sim:0", "sim:1"])
def test_preferred_node_and_stream_travel_to_autograds_device_thread(node: str):
    def backward(multithreaded: bool) -> tuple[int, list[str], Tensor]:
        with innkeeper.experiment(), innkeeper.on(node):
            torch.managed.manual_seed(7)
            x = torch.ones(16, device="managed", requires_grad=True)
            y = _BornInBackward.apply(x)
            with torch.autograd.set_multithreading_enabled(multithreaded):
                y.sum().backward()
        return _BornInBackward.seen.pop()

    def in_a_thread_of_its_own(multithreaded: bool) -> tuple[int, tuple[int, list[str], Tensor]]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: (threading.get_ident(), backward(multithreaded))).result()

    caller, (thread, nodes, drawn) = in_a_thread_of_its_own(False)
    assert thread == caller
    assert nodes == [node]
    caller, (thread, nodes, drawn_there) = in_a_thread_of_its_own(True)
    assert thread != caller, "autograd's device thread ran it"
    assert nodes == [node]
    assert torch.equal(drawn, drawn_there)


def test_printing_moves_nothing():
    x = torch.arange(6.0, device="managed").view(2, 3)
    innkeeper.evict(x)
    assert str(x) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='managed:0')"
    assert innkeeper.where(x) == ["host"]


def test_a_kernel_finds_the_gpu_it_runs_on_to_be_the_current_one(configure: Callable[[str], None]):
    configure("sim:2x1MiB,host:64MiB")
    seen = []

    def look(x):
        seen.append((x.device.index, torch.Stream(device="hpu").device.index))
        return x + 1

    library = torch.library.Library("innkeeper_looks", "FRAGMENT")
    library.define("look(Tensor x) -> Tensor")
    library.impl("look", lambda x: x + 1, "CPU")
    library.impl("look", look, "HPU")
    for gpu in (1, 0):
        x = torch.ones(8, device="managed")
        innkeeper.pin(x, f"sim:{gpu}")
        assert torch.ops.innkeeper_looks.look(x).sum().item() == 16
    assert seen == [(1, 1), (0, 0)]


def test_what_kernels_on_the_host_allocate_counts(configure: Callable[[str], None]):
    configure("host:8MiB")
    x = torch.randn(512, 512, device="managed")
    innkeeper.manager().reset_stats()
    q, r = torch.linalg.qr(x)
    host = innkeeper.stats()["nodes"]["host"]
    assert host["resident"] == host["recount"] >= sum(t.nbytes for t in (x, q, r))
    assert host["peak"] > host["resident"]  # Scratch memory, which is free again.
    with pytest.raises(torch.OutOfMemoryError, match=r"32\.0 MiB asked, .* of its budget of 8\.0 MiB"):
        x.expand(32, 512, 512).contiguous()
