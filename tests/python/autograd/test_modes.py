"""Dispatch modes and other states of a thread neither see the engine's actions nor disturb them.

The actions are the verbs, and evictions in the middle of an operator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import innkeeper
import pytest
from budget_fixture import Squeeze, same
from torch._C import _functorch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import torch

KiB = 1 << 10


class Refusing(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"no {function}")


class RefusingFunctions(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"no {function}")


@contextmanager
def level(enter: Callable[..., Any], leave: Callable[[], Any], *args: Any) -> Iterator[None]:
    enter(*args)
    try:
        yield
    finally:
        leave()


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def refuse(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("saved")


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "none": nullcontext,
    "a dispatch mode": Refusing,
    "fake tensors": FakeTensorMode,
    "a function mode": RefusingFunctions,
    "the Python dispatcher": enable_python_dispatcher,
    "functionalization": lambda: level(torch._enable_functionalization, torch._disable_functionalization),
    "vmap": lambda: level(_functorch._vmap_increment_nesting, _functorch._vmap_decrement_nesting, 3, "error"),
    "grad": lambda: level(_functorch._grad_increment_nesting, _functorch._grad_decrement_nesting),
    "jvp": lambda: level(_functorch._jvp_increment_nesting, _functorch._jvp_decrement_nesting),
    "forward AD": torch.autograd.forward_ad.dual_level,
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "autocast": lambda: torch.autocast("managed"),
    "saved tensors' hooks": lambda: torch.autograd.graph.saved_tensors_hooks(refuse, refuse),
    "anomalies": torch.autograd.detect_anomaly,
    "the profiler": torch.profiler.profile,
    "counting flops": lambda: FlopCounterMode(display=False),
    "another default device": lambda: torch.device("meta"),
    "another default dtype": float64,
    "deterministic algorithms": deterministic,
}
in_every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())


@in_every_mode
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_the_verbs_work(mode: Callable[[], AbstractContextManager[Any]], squeeze: Squeeze):
    values = torch.arange(4096.0)
    x, y, z = (values.to("managed") + n for n in range(3))
    model = torch.nn.Linear(4, 4).to("managed")
    squeeze(40 * KiB)
    with mode():
        for node in ("sim:0", "sim:1"):
            for tensor in (x, y, z):
                innkeeper.prefetch(tensor, node)  # Evicts other tensors.
        innkeeper.evict(x)
        assert innkeeper.where(x) == ["host"]
        innkeeper.pin(x, "sim:1")
        innkeeper.unpin(x)
        innkeeper.evict(model)
        innkeeper.pin(model)
        innkeeper.unpin(model)
        with innkeeper.resident(y, "host") as real:
            assert type(real) is torch.Tensor
            del real
        with innkeeper.resident(z, "sim:0", write=True) as real:
            del real
        torch.managed.synchronize()
        assert innkeeper.stats()["evictions"] > 0 and innkeeper.summary()
        innkeeper.manager().check_invariants()
    for n, tensor in enumerate((x, y, z)):
        assert same(tensor, values + n)


@in_every_mode
def test_a_storage_is_resized(mode: Callable[[], AbstractContextManager[Any]]):
    x = torch.arange(1024.0, device="managed")
    storage = x.untyped_storage()
    with mode():
        storage.resize_(8192)
    assert same(x, torch.arange(1024.0)) and storage.nbytes() == 8192


# Modes that let operators run, and record them.


class Seeing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


class SeeingFunctions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(function.__name__)
        return function(*args, **(kwargs or {}))


def tight_sums(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Needs evictions in the middle: neither all operands nor all results fit."""
    return [torch.add(x, x) for x in xs]


@pytest.fixture
def operands(squeeze: Squeeze) -> Iterator[list[torch.Tensor]]:
    """Tensors that do not fit together: each is fetched, and its sum evicts others."""
    xs = [torch.arange(4096.0).add(n).to("managed") for n in range(6)]
    squeeze(48 * KiB)
    innkeeper.manager().reset_stats()
    yield xs
    for n, x in enumerate(xs):
        assert same(x, torch.arange(4096.0).add(n))


def check(sums: list[torch.Tensor]) -> None:
    assert innkeeper.stats()["evictions"] > 0
    for n, x in enumerate(sums):
        assert same(x, torch.arange(4096.0).add(n).mul(2))


def test_a_dispatch_mode_sees_the_programs_operators_alone(operands: list[torch.Tensor]):
    with Seeing() as outer, Seeing() as inner:
        sums = tight_sums(operands)
    assert outer.seen == inner.seen == ["aten.add.Tensor"] * 6
    check(sums)


def test_a_function_mode_sees_the_programs_functions_alone(operands: list[torch.Tensor]):
    with SeeingFunctions() as mode:
        sums = tight_sums(operands)
        innkeeper.evict(sums[0])
    assert mode.seen == ["add"] * 6
    check(sums)


def test_the_profiler_counts_no_copies_of_the_engines(operands: list[torch.Tensor]):
    with warnings.catch_warnings():
        # The profiler would look for torch.hpu, whose place simulated nodes have.
        warnings.simplefilter("error")
        with torch.profiler.profile() as profile:
            sums = tight_sums(operands)
    names = {event.key for event in profile.key_averages()}
    assert "aten::add" in names and not {name for name in names if "copy" in name}
    check(sums)


def test_traces_hold_no_copies_of_the_engines(operands: list[torch.Tensor]):
    traced = torch.jit.trace(lambda *xs: tight_sums(list(xs)), operands, check_trace=False)
    assert "copy" not in str(traced.graph) and str(traced.graph).count("aten::add") == 6
    graph = make_fx(lambda *xs: tight_sums(list(xs)))(*operands).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.aten.add.Tensor] * 6
    check(traced(*operands))


TRACED: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: torch.nn.Linear(8, 3), (2, 8)),
    "convolution": (lambda: torch.nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
    "convolution in one dimension": (lambda: torch.nn.Conv1d(3, 4, 3, padding="same"), (2, 3, 8)),
    "transposed": (lambda: torch.nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 8, 8)),
    "batch norm": (lambda: torch.nn.BatchNorm2d(3), (2, 3, 8, 8)),
    "group norm": (lambda: torch.nn.GroupNorm(1, 3), (2, 3, 8, 8)),
    "layer norm": (lambda: torch.nn.LayerNorm(8), (2, 3, 8)),
    "RMS norm": (lambda: torch.nn.RMSNorm(8), (2, 3, 8)),
    "LSTM": (lambda: torch.nn.LSTM(8, 4), (3, 2, 8)),
    "pooling": (lambda: torch.nn.MaxPool2d(2), (2, 3, 8, 8)),
}


@pytest.mark.parametrize("name", TRACED)
def test_modules_are_traced_as_on_the_cpu(name: str):
    make, shape = TRACED[name]
    kinds, results = [], []
    for device in ("cpu", "managed"):
        torch.manual_seed(0)
        model = make().to(device)
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)
        traced = torch.jit.trace(model, (x,))
        kinds.append([node.kind() for node in traced.inlined_graph.nodes()])
        results.append([y.detach().cpu() for y in tree_leaves(traced(x))])
    assert kinds[0] == kinds[1]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_transforms_hold_no_copies_of_the_engines(operands: list[torch.Tensor]):
    stacked = torch.func.vmap(lambda x: tight_sums(operands)[3][:4] + x)(torch.zeros(2, 4, device="managed"))
    assert same(stacked, torch.arange(3.0, 7.0).mul(2).expand(2, 4).contiguous())
    slopes = torch.func.grad(lambda x: sum((y * x).sum() for y in tight_sums(operands)))(
        torch.ones((), device="managed")
    )
    assert slopes.item() == sum(torch.arange(4096.0).add(n).mul(2).sum().item() for n in range(6))
    check(tight_sums(operands))


def test_hooks_of_saved_tensors_get_the_programs_alone(operands: list[torch.Tensor]):
    packed: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        weight = torch.ones((), device="managed", requires_grad=True)
        total = sum((x * weight).sum() for x in operands)
    total.backward()
    assert [x.shape for x in packed] == [(4096,)] * 6
    assert weight.grad.item() == sum(x.cpu().sum().item() for x in operands)
    check(tight_sums(operands))


OPERATORS_RUN_IN = [
    "inference",
    "no gradients",
    "another default dtype",
    "another default device",
    "anomalies",
    "deterministic algorithms",
    "forward AD",
]


@pytest.mark.parametrize("name", OPERATORS_RUN_IN)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_operators_make_room(name: str, operands: list[torch.Tensor]):
    with MODES[name]():
        sums = tight_sums(operands)
        moved = [x.cpu() for x in sums]
    check(sums)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(moved, sums, strict=True))


def test_deterministic_algorithms_fill_unwritten_memory():
    def made(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        dirty = torch.ones(64, device=device)
        del dirty
        options = [torch.float32, torch.bfloat16, torch.complex64, torch.int32, torch.uint8, torch.bool]
        return [
            *(torch.empty(5, device=device, dtype=dtype) for dtype in options),
            *(torch.ones(2, device=device, dtype=dtype).resize_(6) for dtype in options),
            torch.empty_strided((2, 2), (1, 2), device=device),
            torch.empty_like(torch.ones(3, device=device)),
            torch.ones(3, device=device).new_empty(2),
            torch.empty(0, device=device),
        ]

    with deterministic():
        assert all(same(a, b) for a, b in zip(made("managed"), made("cpu"), strict=True))


def test_what_has_no_bytes_of_its_own_is_refused():
    x = torch.ones(2, 3, device="managed")
    with FakeTensorMode():
        fake = torch.ones(2, device="managed")
    with pytest.raises(TypeError, match="no bytes of its own"):
        innkeeper.evict(fake)
    with pytest.raises(TypeError, match="no bytes of its own"):
        torch.func.vmap(lambda row: innkeeper.evict(row) or row)(x)
    with pytest.raises(TypeError, match="indices and values"):
        innkeeper.evict(x.to_sparse())


ZEROS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "itself": lambda zeros, x: zeros,
    "a product": lambda zeros, x: zeros * x,
    "their sum": lambda zeros, x: zeros + zeros,
    "a view": lambda zeros, x: zeros.t()[1],
    "another type": lambda zeros, x: zeros.double(),
    "a sum": lambda zeros, x: x + zeros,
    "a matrix": lambda zeros, x: zeros @ x.t(),
    "a copy": lambda zeros, x: x.clone().copy_(zeros),
    "a clone": lambda zeros, x: zeros.clone(),
    "alike": lambda zeros, x: torch.zeros_like(zeros),
    "times a number": lambda zeros, x: zeros * 2,
    "plus a number": lambda zeros, x: zeros + 2,
    "a dot product": lambda zeros, x: torch.dot(x[0], zeros[0]),
    "another": lambda zeros, x: torch.vdot(zeros[0], x[0]),
    "a list": lambda zeros, x: torch._foreach_add([zeros, x], [x, zeros])[0],
}


@pytest.mark.parametrize("use", ZEROS.values(), ids=ZEROS.keys())
def test_zeros_without_memory_are_so_here(use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
    """Forward-mode and higher derivatives make them, and PyTorch's rules for them save the work on zeros."""
    made = {}
    for device in ("cpu", "managed"):
        x = torch.arange(12.0).view(3, 4).to(device)
        made[device] = use(torch._efficientzerotensor((3, 4), device=device), x)
    assert made["managed"].device.type == "managed"
    assert torch._is_zerotensor(made["managed"]) == torch._is_zerotensor(made["cpu"])
    assert torch.equal(made["managed"].cpu(), made["cpu"])


def test_derivatives_that_are_zero_are_had():
    x, y = torch.randn(35), torch.randn(35)
    second = torch.func.jacfwd(torch.func.jacfwd(torch.nn.functional.mse_loss))
    assert torch.equal(second(x.to("managed"), y.to("managed")).cpu(), second(x, y))
    for kernel in (lambda x: torch.floor(x) @ y.to(x.device), lambda x: torch.addcmul(x, torch.sign(x), x)):
        expected = torch.func.jvp(kernel, (x,), (y,))
        found = torch.func.jvp(kernel, (x.to("managed"),), (y.to("managed"),))
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


def test_zeros_without_memory_are_nowhere():
    zeros = torch._efficientzerotensor((3, 4), device="managed")
    with pytest.raises(RuntimeError, match=r"zeros of 48 bytes without memory .* clone\(\)"):
        innkeeper.where(zeros)
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zeros.add_(1)
    assert innkeeper.where(zeros.clone()) != []
