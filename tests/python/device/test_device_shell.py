"""The device's interface: streams, events, generators, Module.to, pinned memory, addresses, threads."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import innkeeper
import pytest
import torch.nn.functional as F

import torch
from torch import Tensor, nn

DEVICE = torch.device("managed", 0)


# ---------------------------------------------------------------- streams and events


def test_streams_are_names_that_nest():
    first = torch.Stream(device="managed")
    second = torch.Stream(device="managed")
    assert first.device == DEVICE
    assert first != second
    before = torch.accelerator.current_stream()
    with first:
        assert torch.accelerator.current_stream() == first
        with second:
            assert torch.accelerator.current_stream() == second
            x = torch.ones(8, device="managed") * 2
        assert torch.accelerator.current_stream() == first
    assert torch.accelerator.current_stream() == before
    second.synchronize()
    assert second.query()
    assert torch.equal(x.cpu(), torch.full((8,), 2.0))


def test_another_thread_has_its_own_current_stream():
    stream = torch.Stream(device="managed")
    seen = []
    with stream:
        thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_stream()))
        thread.start()
        thread.join()
    assert seen[0] != stream


def test_work_of_streams_is_ordered_by_events():
    producer, consumer = torch.Stream(device="managed"), torch.Stream(device="managed")
    with producer:
        x = torch.randn(200, 200, device="managed")
        y = x @ x
        done = producer.record_event()
    with consumer:
        consumer.wait_event(done)
        z = y + 1
    y.record_stream(consumer)
    consumer.wait_stream(producer)
    done.synchronize()
    assert done.query()
    assert torch.equal(z.cpu(), (x.cpu() @ x.cpu()) + 1)


def test_events_measure_work():
    begin = torch.Event(device="managed", enable_timing=True)
    end = torch.Event(device="managed", enable_timing=True)
    begin.record()
    x = torch.randn(400, 400, device="managed")
    for _ in range(5):
        x = x @ x
    end.record()
    assert begin.elapsed_time(end) > 0
    untimed = torch.Event(device="managed")
    untimed.record()
    with pytest.raises(ValueError, match="enable_timing"):
        untimed.elapsed_time(untimed)


def test_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("managed")
    assert torch.accelerator.device_count() == 1
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    x = torch.ones(1000, device="managed")
    assert torch.accelerator.memory_allocated() >= x.nbytes
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    free, total = torch.accelerator.get_memory_info()
    assert (
        0 < free <= total == sum(node.budget for node in innkeeper.manager().nodes.values() if node.computes)
    )
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    with pytest.raises(RuntimeError, match="no managed:1"):
        torch.accelerator.set_device_index(1)


# ---------------------------------------------------------------- random numbers


@pytest.mark.parametrize("draw", [
    lambda d: torch.randn(1000, device=d),
    lambda d: torch.rand(7, 3, device=d, dtype=torch.float64),
    lambda d: torch.randint(0, 1 << 40, (50,), device=d),
    lambda d: torch.randperm(100, device=d),
    lambda d: torch.empty(100, device=d).exponential_(),
    lambda d: torch.bernoulli(torch.full((100,), 0.3, device=d)),
    lambda d: torch.multinomial(torch.ones(10, device=d), 4),
    lambda d: torch.rand_like(torch.empty(9, device=d)),
    lambda d: torch.normal(torch.zeros(20, device=d), 1.0),
    lambda d: F.rrelu(torch.linspace(-1, 1, 50, device=d), training=True),
    lambda d: F.gumbel_softmax(torch.ones(5, 5, device=d)),
])  # fmt: skip
def test_a_seed_gives_the_cpus_numbers(draw: Callable[[str], Tensor]):
    torch.manual_seed(11)
    expected = [draw("cpu"), draw("cpu")]
    torch.manual_seed(11)
    assert all(torch.equal(draw("managed").cpu(), x) for x in expected)


def test_the_cpus_generator_is_not_disturbed():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    x = torch.randn(100, 100, device="managed")
    F.dropout(x, 0.5)
    torch.native_dropout(x, 0.5, True)
    F.scaled_dot_product_attention(
        x.view(1, 1, 100, 100), x.view(1, 1, 100, 100), x.view(1, 1, 100, 100), dropout_p=0.1
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_generators_are_streams_of_their_own():
    generator = torch.Generator(device="managed")
    assert generator.device == DEVICE
    assert generator.initial_seed() == torch.Generator().initial_seed()
    generator.manual_seed(5)
    process = torch.managed.get_rng_state()
    drawn = torch.randn(10, device="managed", generator=generator)
    assert torch.equal(drawn.cpu(), torch.randn(10, generator=torch.Generator().manual_seed(5)))
    assert torch.equal(torch.managed.get_rng_state(), process)
    state = generator.get_state()
    first = torch.rand(4, device="managed", generator=generator)
    clone = generator.clone_state()
    generator.set_state(state)
    assert torch.equal(torch.rand(4, device="managed", generator=generator).cpu(), first.cpu())
    assert torch.equal(torch.rand(4, device="managed", generator=clone).cpu(),
                       torch.rand(4, device="managed", generator=generator).cpu())  # fmt: skip


def test_generators_can_be_pickled():
    generator = torch.Generator(device="managed")
    generator.manual_seed(5)
    torch.randn(3, device="managed", generator=generator)
    copied = pickle.loads(pickle.dumps(generator))
    assert copied.device == DEVICE
    assert copied.initial_seed() == 5
    drawn = torch.randn(3, device="managed", generator=generator)
    assert torch.equal(torch.randn(3, device="managed", generator=copied).cpu(), drawn.cpu())


def test_fork_rng_keeps_the_stream():
    torch.manual_seed(2)
    state = torch.managed.get_rng_state()
    with torch.random.fork_rng(device_type="managed"):
        torch.randn(5, device="managed")
        torch.manual_seed(77)
    assert torch.equal(torch.managed.get_rng_state(), state)


# ---------------------------------------------------------------- modules


class Tied(nn.Module):
    """A language model's head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens))


def test_module_to_keeps_weights_tied_and_optimizers_valid():
    model = Tied()
    weight = model.head.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens = torch.arange(11)
    model(tokens).sum().backward()
    model.to("managed")
    assert model.head.weight is weight
    assert model.embedding.weight is weight
    assert weight.device == DEVICE
    assert weight.grad.device == DEVICE
    before = weight.detach().cpu()
    optimizer.zero_grad()
    model(tokens.to("managed")).pow(2).sum().backward()
    optimizer.step()
    assert not torch.equal(weight.detach().cpu(), before), "the optimizer updates the moved weight"
    model.to("cpu")
    assert model.head.weight is model.embedding.weight is weight
    assert weight.device.type == "cpu"


def test_data_can_be_assigned_across_devices():
    x = torch.zeros(3, requires_grad=True)
    x.data = torch.ones(3, device="managed")
    assert x.device == DEVICE
    (x * 2).sum().backward()
    assert torch.equal(x.grad.cpu(), torch.full((3,), 2.0))


# ---------------------------------------------------------------- pinned memory, addresses, backward threads


def test_pinned_memory_is_remembered():
    plain = torch.arange(100)
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert pinned[50:].is_pinned()
    assert not plain.is_pinned()
    assert torch.equal(pinned, plain)
    assert torch.empty(10, pin_memory=True).is_pinned()
    assert torch.equal(pinned.to("managed", non_blocking=True).cpu(), plain)
    batch = next(iter(torch.utils.data.DataLoader([plain, plain], batch_size=2, pin_memory=True)))
    assert batch.is_pinned()


def test_addresses_identify_storages():
    x = torch.empty(100, device="managed")
    y = torch.empty(100, device="managed")
    assert x.data_ptr() != y.data_ptr()
    assert x[10:].data_ptr() == x.data_ptr() + 40
    assert x.untyped_storage().data_ptr() == x.view(10, 10).untyped_storage().data_ptr()
    assert torch.empty(0, device="managed").data_ptr() == 0


def test_backward_runs_on_the_thread_that_called_it():
    threads: list[int] = []

    def train() -> None:
        x = torch.ones(4, device="managed", requires_grad=True)
        y = x * 2
        y.register_hook(lambda _: threads.append(threading.get_ident()))
        y.sum().backward()
        threads.append(threading.get_ident())

    workers = [threading.Thread(target=train) for _ in range(4)]
    for worker in workers:
        worker.start()
        worker.join()
    assert threads[0::2] == threads[1::2]
