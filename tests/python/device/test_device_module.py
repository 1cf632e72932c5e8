"""torch.managed against torch.cuda: the table covers every public name, and each entry is true."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import innkeeper
import numpy
import pytest
from innkeeper.managed_device.table import NOT_APPLICABLE, REFUSED, WORKS
from processes import RunProgram

import torch

managed = torch.managed  # type: ignore[attr-defined]


def test_every_public_name_of_torch_cuda_is_in_the_table_once():
    public = set(torch.cuda.__all__)
    assert public - WORKS - set(REFUSED) - set(NOT_APPLICABLE) == set()
    # The table may have names of other versions of PyTorch; each name stands in one place.
    assert (
        not WORKS & set(REFUSED)
        and not WORKS & set(NOT_APPLICABLE)
        and not set(REFUSED) & set(NOT_APPLICABLE)
    )


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_names_raise_with_the_reason(name: str):
    refused = getattr(managed, name)
    with pytest.raises(RuntimeError, match="is refused") as error:
        refused()
    assert f"torch.managed.{name}" in str(error.value) and REFUSED[name] in str(error.value)
    with pytest.raises(RuntimeError, match="is refused"):
        _ = refused.attribute


@pytest.mark.parametrize("name", sorted(NOT_APPLICABLE))
def test_names_that_do_not_apply_are_absent_with_the_reason(name: str):
    assert not hasattr(managed, name)
    with pytest.raises(AttributeError, match="not applicable"):
        getattr(managed, name)


def enters(context: Any) -> bool:
    with context:
        return True


TYPES = [name for name in sorted(WORKS) if name.endswith(("Tensor", "Storage"))]
CALLS: dict[str, Callable[[], Any]] = {
    "is_available": lambda: managed.is_available() is True,
    "device_count": lambda: managed.device_count() == 1,
    "current_device": lambda: managed.current_device() == 0,
    "set_device": lambda: managed.set_device("managed:0") is None,
    "device": lambda: enters(managed.device(0)),
    "device_of": lambda: enters(managed.device_of(torch.ones(1))) and enters(managed.device_of(ones())),
    "synchronize": lambda: managed.synchronize() is None,
    "init": lambda: managed.init() is None,
    "is_initialized": lambda: managed.is_initialized() is True,
    "get_device_name": lambda: "sim:0" in managed.get_device_name(0),
    "get_device_properties": lambda: managed.get_device_properties(0).total_memory > 0,
    "is_bf16_supported": lambda: managed.is_bf16_supported() is True,
    "is_tf32_supported": lambda: managed.is_tf32_supported() is False,
    "has_half": lambda: managed.has_half,
    "has_magma": lambda: managed.has_magma is False,
    "Stream": lambda: managed.Stream().query(),
    "Event": lambda: recorded(managed.Event()).query(),
    "StreamContext": lambda: enters(managed.StreamContext(managed.Stream())),
    "stream": lambda: enters(managed.stream(managed.Stream())) and enters(managed.stream(None)),
    "current_stream": lambda: managed.current_stream().device.type == "managed",
    "default_stream": lambda: managed.default_stream() == managed.current_stream(),
    "set_stream": lambda: managed.set_stream(managed.current_stream()) is None,
    "is_current_stream_capturing": lambda: managed.is_current_stream_capturing() is False,
    "streams": lambda: managed.streams.Stream is managed.Stream,
    "memory": lambda: managed.memory.mem_get_info is managed.mem_get_info,
    "memory_allocated": lambda: managed.memory_allocated("managed") >= 0,
    "max_memory_allocated": lambda: managed.max_memory_allocated() >= managed.memory_allocated(),
    "memory_reserved": lambda: managed.memory_reserved(0) >= 0,
    "max_memory_reserved": lambda: managed.max_memory_reserved() >= 0,
    "memory_cached": lambda: managed.memory_cached() >= 0,
    "max_memory_cached": lambda: managed.max_memory_cached() >= 0,
    "mem_get_info": lambda: 0 <= managed.mem_get_info()[0] <= managed.mem_get_info()[1],
    "memory_stats": lambda: managed.memory_stats()["allocated_bytes.all.peak"] >= 0,
    "memory_stats_as_nested_dict": lambda: "innkeeper" in managed.memory_stats_as_nested_dict(),
    "memory_snapshot": lambda: (
        managed.memory._record_memory_history(),
        isinstance(managed.memory_snapshot(), list),
        managed.memory._record_memory_history(None),
    )[1],
    "memory_summary": lambda: (
        "sim:0" in managed.memory_summary() and managed.memory_summary(abbreviated=True)
    ),
    "device_memory_used": lambda: managed.device_memory_used() >= 0,
    "get_allocator_backend": lambda: managed.get_allocator_backend() == "innkeeper",
    "reset_peak_memory_stats": lambda: managed.reset_peak_memory_stats() is None,
    "reset_accumulated_memory_stats": lambda: managed.reset_accumulated_memory_stats() is None,
    "reset_max_memory_allocated": lambda: managed.reset_max_memory_allocated() is None,
    "reset_max_memory_cached": lambda: managed.reset_max_memory_cached() is None,
    "empty_cache": lambda: managed.empty_cache() is None,
    "set_per_process_memory_fraction": lambda: managed.set_per_process_memory_fraction(1.0) is None,
    "get_per_process_memory_fraction": lambda: managed.get_per_process_memory_fraction() == 1.0,
    "random": lambda: managed.random.manual_seed is managed.manual_seed,
    "manual_seed": lambda: managed.manual_seed(-1) is None and managed.initial_seed() == 2**64 - 1,
    "manual_seed_all": lambda: managed.manual_seed_all(5) is None and managed.initial_seed() == 5,
    "seed": lambda: managed.seed() is None,
    "seed_all": lambda: managed.seed_all() is None,
    "initial_seed": lambda: isinstance(managed.initial_seed(), int),
    "get_rng_state": lambda: managed.get_rng_state().dtype == torch.uint8,
    "get_rng_state_all": lambda: len(managed.get_rng_state_all()) == 1,
    "set_rng_state": lambda: managed.set_rng_state(managed.get_rng_state(), "managed:0") is None,
    "set_rng_state_all": lambda: managed.set_rng_state_all(managed.get_rng_state_all()) is None,
    "amp": lambda: enters(managed.amp.autocast()) and managed.amp.GradScaler().is_enabled(),
    "ipc_collect": lambda: managed.ipc_collect() is None,
} | {name: lambda name=name: made(getattr(managed, name)) for name in TYPES}


def ones() -> torch.Tensor:
    return torch.ones(1, device="managed")


def recorded(event: Any) -> Any:
    event.record()
    event.synchronize()
    return event


def made(kind: Any) -> bool:
    """An object of the type can be made, is on the device and of the dtype, and is recognised."""
    x = kind(3)
    return x.device.type == "managed" and x.dtype == kind.dtype and len(x) == 3 and isinstance(x, kind)


@pytest.mark.parametrize("name", sorted(WORKS))
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_names_that_work(name: str):
    assert hasattr(managed, name) and name in managed.__all__
    assert CALLS[name]()


def test_types_say_what_they_are():
    x, T = torch.ones(2, 2, device="managed"), managed.FloatTensor
    assert (T.__name__, T.__module__, str(T)) == (
        "FloatTensor",
        "torch.managed",
        "<class 'torch.managed.FloatTensor'>",
    )
    assert (T.layout, T.is_sparse, T.is_sparse_csr, T.is_xpu) == (torch.strided, False, False, False)
    assert T.is_cuda is x.is_cuda is False and pickle.loads(pickle.dumps(T)) is T
    assert T.add(x, 1).sum().item() == 8 and not hasattr(T, "nothing") and torch.typename(T) == x.type()
    assert x.double().type(T).type() == "torch.managed.FloatTensor"
    nested = torch.nested.nested_tensor([x], layout=torch.jagged)
    assert not any(isinstance(each, T) for each in (x.to_sparse(), x.to_sparse_csr(), nested, x.cpu(), None))


def test_a_type_takes_what_its_counterpart_on_the_cpu_takes():
    """Sizes in each form, values in each form, and the CPU's error message for anything else."""
    two, three = torch.tensor(2), numpy.int64(3)
    sizes: list[tuple[Any, ...]] = [(), (2, 3), (three,), (three, 2), (two, 3), (torch.Size([2, 3]),)]
    values = [[1, 2], (1.5, 2), range(3), numpy.ones((2, 3)), [[True], [False]], [torch.ones(1).squeeze()]]
    for given in sizes:
        x = managed.FloatTensor(*given)
        assert x.shape == torch.FloatTensor(*given).shape and x.device.type == "managed"
    for value in values:
        x, expected = managed.FloatTensor(value), torch.FloatTensor(value)
        assert x.device.type == "managed" and x.dtype == expected.dtype and torch.equal(x.cpu(), expected)
    assert managed.FloatTensor(size=(2, 3)).shape == (2, 3)
    for wrong in (2.5, None, True, "a"):
        with pytest.raises(TypeError) as expected_error:
            torch.FloatTensor(wrong)
        with pytest.raises(TypeError) as error:
            managed.FloatTensor(wrong)
        assert str(error.value) == str(expected_error.value)


def test_another_device_index_or_kind_is_refused():
    for call in (managed.device, managed.set_device, managed.synchronize, managed.memory_allocated):
        with pytest.raises(ValueError, match="one managed device"):
            call(1)
        with pytest.raises(ValueError, match="one managed device"):
            call("managed:1")
        with pytest.raises(ValueError, match="Expected a managed device"):
            call("cpu")


def test_streams_order_and_time():
    first, second = managed.Stream(), managed.Stream()
    assert first != second
    start, end = managed.Event(enable_timing=True), managed.Event(enable_timing=True)
    with managed.stream(first):
        assert managed.current_stream() == first
        start.record()
        x = torch.ones(100, 100, device="managed") @ torch.ones(100, 100, device="managed")
        end.record()
    second.wait_event(end)
    with managed.stream(second):
        assert (x + 1)[0, 0].item() == 101
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_random_states_continue_and_seeds_repeat():
    torch.manual_seed(3)
    first = torch.rand(4, device="managed")
    state = managed.get_rng_state()
    second = torch.rand(4, device="managed")
    managed.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="managed"), second)
    managed.manual_seed(3)
    assert torch.equal(torch.rand(4, device="managed"), first)
    with torch.random.fork_rng(device_type="managed"):
        torch.rand(4, device="managed")
    assert torch.equal(torch.rand(4, device="managed"), second)


def test_memory_numbers_before_the_start_leave_a_program_able_to_fork(run_python: RunProgram):
    code = """
import os, torch, innkeeper
managed = torch.managed
print(managed.memory_allocated(), managed.max_memory_reserved(), managed.device_count(), flush=True)
if os.fork() == 0:
    print(torch.ones(2, device="managed").sum().item(), flush=True)
    os._exit(0)
os.wait()
print(managed.is_initialized(), managed.mem_get_info()[0] > 0, managed._initialized)
"""
    done = run_python("-c", code)
    assert done.stdout.splitlines() == ["0 0 1", "2.0", "False True True"], done.stderr


def test_memory_numbers_follow_allocations():
    managed.synchronize()
    managed.reset_peak_memory_stats()
    before = managed.memory_allocated()
    x = torch.ones(1 << 18, device="managed")
    assert managed.memory_allocated() - before == 1 << 20
    del x
    assert managed.memory_allocated() == before
    assert managed.max_memory_allocated() - before >= 1 << 20
    free, total = managed.mem_get_info()
    assert total == sum(node.budget for node in innkeeper.manager().nodes.values() if node.computes)
    assert free == total - before
