"""DeviceManager: one per process; nodes, budgets, reserve, find_device, estimates, statistics, logs."""

from __future__ import annotations

import logging
import threading

import innkeeper
import pytest
from processes import RunProgram

import torch
from torch import nn

MIB = 1 << 20


def test_there_is_one_manager():
    made = []
    threads = [threading.Thread(target=lambda: made.append(innkeeper.DeviceManager())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(manager is innkeeper.manager() for manager in made)


def test_nodes_and_budgets():
    manager = innkeeper.manager()
    assert list(manager.nodes) == ["sim:0", "sim:1", "host"]
    node = manager.nodes["sim:1"]
    assert (node.name, node.kind, node.capacity, node.computes) == ("sim:1", "sim", 16 * MIB, True)
    assert manager.budget("sim:1") == 16 * MIB
    with pytest.raises(ValueError, match=r"no node 'sim:9'.*sim:0, sim:1, host"):
        manager.budget("sim:9")


def test_a_smaller_budget_evicts():
    manager = innkeeper.manager()
    with innkeeper.on("sim:0"):
        tensors = [torch.ones(MIB, device="managed") for _ in range(3)]  # 4 MiB each
    manager.set_budget("sim:0", 5 * MIB)
    try:
        assert innkeeper.stats()["nodes"]["sim:0"]["resident"] <= 5 * MIB
        assert all(tensor.sum().item() == MIB for tensor in tensors)
    finally:
        manager.set_budget("sim:0", 16 * MIB)
        manager.reset_stats()


@pytest.mark.parametrize("nbytes", [0, -1, 17 * MIB])
def test_budgets_that_make_no_sense_are_refused(nbytes: int):
    with pytest.raises(ValueError, match="budget"):
        innkeeper.manager().set_budget("sim:0", nbytes)
    assert innkeeper.manager().budget("sim:0") == 16 * MIB


def test_reserve_keeps_a_fraction_of_accelerators_free():
    manager = innkeeper.manager()
    manager.reserve = 0.25
    try:
        assert manager.reserve == 0.25
        assert manager.budget("sim:0") == manager.budget("sim:1") == 12 * MIB
        assert manager.budget("host") == 1024 * MIB
        assert torch.managed.get_per_process_memory_fraction() == 0.75
    finally:
        manager.reserve = 0.0
        manager.reset_stats()
    assert manager.budget("sim:0") == 16 * MIB
    for wrong in (-0.1, 1.0):
        with pytest.raises(ValueError, match="fraction"):
            manager.reserve = wrong


def test_size_estimate_counts_gradients():
    manager = innkeeper.manager()
    assert manager.size_estimate(torch.ones(10)) == 40
    linear = nn.Linear(10, 1)
    assert manager.size_estimate(linear) == 2 * 44
    assert manager.size_estimate(linear.requires_grad_(False), torch.ones(1)) == 48
    manager.size_heuristic = lambda nbytes: 2 * nbytes
    try:
        assert manager.size_estimate(torch.ones(10)) == 80
    finally:
        del manager.size_heuristic


def test_find_device_gives_the_emptiest_node():
    manager = innkeeper.manager()
    with innkeeper.on("sim:0"):
        x = torch.ones(MIB, device="managed")
    assert manager.find_device(MIB) == "sim:1"
    del x


def test_find_device_disperses():
    manager = innkeeper.manager()
    seen = set()

    def look() -> None:
        node = manager.find_device(MIB, disperse=True)
        with innkeeper.on(node):
            torch.ones(10, device="managed")
            seen.add(node)
            barrier.wait()

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"sim:0", "sim:1"} or len(seen) == 1  # Both threads looked before either had a home.


def test_find_device_waits_for_pins_and_then_gives_the_host():
    manager = innkeeper.manager()
    manager.retry_limit, manager.wait_time = 3, 0.05
    tensors = []
    for node in ("sim:0", "sim:1"):
        with innkeeper.on(node):
            tensors.append(torch.ones(3 * MIB, device="managed"))  # 12 of 16 MiB.
        innkeeper.pin(tensors[-1], node)
    try:
        assert manager.find_device(MIB) in ("sim:0", "sim:1")
        assert manager.find_device(8 * MIB) == "host"
        manager.soft_placement = False
        with pytest.raises(torch.OutOfMemoryError, match=f"{8 * MIB} bytes; not pinned are .*looked 4 times"):
            manager.find_device(8 * MIB)
        timer = threading.Timer(0.08, innkeeper.unpin, (tensors[1],))
        timer.start()
        manager.retry_limit = 50
        assert manager.find_device(8 * MIB) == "sim:1"
        timer.join()
    finally:
        del manager.retry_limit, manager.wait_time
        manager.soft_placement = True
        innkeeper.unpin(tensors[0])


def test_send_moves_tensors_to_one_node():
    with innkeeper.on("sim:0"):
        x = torch.ones(100, device="managed")
    linear = nn.Linear(10, 10).to("managed")
    assert innkeeper.manager().send([x, linear], "sim:1") == "sim:1"
    before = innkeeper.stats()["bytes_fetched"]
    with innkeeper.resident(linear, "sim:1"):
        assert innkeeper.stats()["bytes_fetched"] == before  # The weights were present or under way.
    assert innkeeper.manager().send([x]) in ("sim:0", "sim:1")


def test_statistics():
    manager = innkeeper.manager()
    manager.reset_stats()
    zero = manager.stats()
    assert zero["ops"] == zero["fetches"] == zero["evictions"] == zero["bytes_between"] == 0
    x = torch.ones(1000, device="managed")
    innkeeper.evict(x)
    (x + 1).cpu()
    now = innkeeper.stats()
    assert set(now) == {
        *(
            "ops",
            "fetches",
            "evictions",
            "bytes_fetched",
            "bytes_written_back",
            "bytes_between",
            "bytes_from_disk",
            "bytes_to_disk",
            "bytes_bound",
            "time_bound",
        ),
        *(
            "recomputed",
            "other_bits",
            "escaped",
            "planned_periods",
            "divergences",
            "period",
            "simulated_seconds",
            "nodes",
        ),
        "moved_from_cpu",
    }
    assert (
        now["bytes_bound"] is None
        and now["time_bound"] is None
        and now["period"] is None
        and now["escaped"] == 0
        and now["simulated_seconds"] > 0
    )
    with pytest.raises(KeyError, match="'planned_rounds' is called 'planned_periods' now"):
        now["planned_rounds"]
    with pytest.raises(KeyError, match=r"^'no_such_key'$"):
        now["no_such_key"]
    assert now["ops"] >= 2 and now["fetches"] == 1 and now["bytes_fetched"] == 4000
    assert list(now["nodes"]) == ["host", "sim:0", "sim:1"]
    for node in now["nodes"].values():
        assert node["resident"] == node["recount"] and node["peak"] >= node["resident"] >= node["replicas"]
    text = innkeeper.summary()
    assert text == manager.summary() and text.splitlines()[0].split()[:2] == ["node", "budget"]
    assert "sim:1" in text and "16.0 MiB" in text and "1 fetches, 1 evictions" in text


def test_samples():
    manager = innkeeper.manager()
    manager.start_samples(2)
    for _ in range(10):
        torch.ones(1000, device="managed").add_(1)
    samples = manager.stop_samples()
    assert samples["nodes"] == ["sim:0", "sim:1", "host"]
    assert len(samples["op"]) == len(samples["resident"]) == len(samples["bytes_fetched"]) >= 10
    assert samples["op"] == sorted(samples["op"]) and all(len(row) == 3 for row in samples["resident"])
    assert max(max(row) for row in samples["resident"]) >= 4000


@pytest.mark.parametrize("every", [-1, 0])
def test_samples_are_taken_every_so_many_operators(every: int):
    with pytest.raises(ValueError, match=f"1 or more; got {every}"):
        innkeeper.manager().start_samples(every)


def test_manager_and_nodes_show_themselves():
    manager = innkeeper.manager()
    torch.ones(1, device="managed")  # The device is in use.
    assert repr(manager) == "<innkeeper.DeviceManager: sim:0 16.0 MiB, sim:1 16.0 MiB, host 1.0 GiB>"
    manager.set_budget("sim:0", 4 << 20)
    shown = [repr(node) for node in manager.nodes.values()]
    manager.set_budget("sim:0", 16 << 20)
    assert shown[:2] == ["<node sim:0: 4.0 MiB of 16.0 MiB, computes>", "<node sim:1: 16.0 MiB, computes>"]
    assert shown[2].startswith("<node host: 1.0 GiB of ") and "computes" not in shown[2]


def test_logs_of_moves(run_python: RunProgram):
    script = """
import torch, innkeeper
innkeeper.manager().log_moves = True
x = torch.ones(1000, device="managed")
innkeeper.evict(x)
(x + 1).cpu()
innkeeper.manager().log_moves = False
innkeeper.evict(x)
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    assert "sim:" in done.stderr and "evict" in done.stderr, done.stderr


def test_log_goes_to_pythons_logger(caplog: pytest.LogCaptureFixture):
    manager = innkeeper.manager()
    with caplog.at_level(logging.DEBUG, logger="innkeeper"):
        manager.log("first")
        manager.log("second", "warning")
    assert [(r.levelname, r.message) for r in caplog.records] == [("DEBUG", "first"), ("WARNING", "second")]
    with pytest.raises(ValueError, match="loud"):
        manager.default_level = "loud"


def test_the_policy_has_a_name():
    assert innkeeper.manager().policy == "reuse-distance"
