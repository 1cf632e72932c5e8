"""Operators larger than every accelerator run in slices, on the host, or fail, depending on the setting."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator

import innkeeper
import pytest
from budget_fixture import same
from processes import RunProgram

import torch
from torch import nn

KIB = 1 << 10
SMALL = "sim:2x2MiB,host:256MiB"  # A matrix() below has 4 MiB.


@pytest.fixture
def small(configure: Callable[[str], None]) -> Iterator[None]:
    configure(SMALL)
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # With more threads the slices of a simulated GPU must be larger.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(before)
    innkeeper.manager().soft_placement = True


def matrix(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (1024, 1024)), generator=torch.Generator().manual_seed(seed))


def ops_at(node: str) -> int:
    return innkeeper.stats()["nodes"][node]["ops"]


ELEMENTWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "exp": lambda a, b: a.exp(),
    "in place": lambda a, b: a.clone().mul_(b),
    "a number": lambda a, b: a.sub(0.5, alpha=3),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "out": lambda a, b: torch.add(a, b, out=torch.empty_like(a)),
    "another type": lambda a, b: a.double() * b,
    "a view of it": lambda a, b: a[1:].clone().tanh_(),
    "three": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "gradient": lambda a, b: torch.ops.aten.gelu_backward(a, b),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("operator", ELEMENTWISE.values(), ids=ELEMENTWISE.keys())
def test_element_wise_operators_run_in_slices_on_the_accelerators(operator: Callable[..., torch.Tensor]):
    a, b = matrix(1), matrix(2)
    innkeeper.manager().reset_stats()
    result = operator(a.to("managed"), b.to("managed"))
    assert same(result, operator(a, b))
    assert ops_at("sim:0") + ops_at("sim:1") >= 12, "each slice is computed by an accelerator"
    for name in ("sim:0", "sim:1"):
        assert innkeeper.stats()["nodes"][name]["peak"] <= 2048 * KIB


@pytest.mark.usefixtures("small")
def test_what_is_no_slice_runs_on_the_host():
    a, b = matrix(1), matrix(2)
    zeros = torch.zeros(1 << 20, device="managed")
    assert innkeeper.where(zeros) == ["host"]
    assert zeros.sum().item() == 0
    managed_a, managed_b = a.to("managed"), b.to("managed")
    assert same(managed_a @ managed_b, a @ b)
    assert same(managed_a.expand(2, 1024, 1024) + 1, a.expand(2, 1024, 1024) + 1)
    assert same(managed_a[:, ::2].exp(), a[:, ::2].exp())  # not dense
    # Not row by row.
    assert same(nn.functional.gelu(managed_a.t()), nn.functional.gelu(a.t()))
    # Broadcast: CPU kernels' threads begin anywhere in a row.
    assert same(managed_a * managed_b[3], a * b[3])
    assert same(managed_a * managed_b[:, 3:4].contiguous(), a * b[:, 3:4].contiguous())
    assert same(managed_a.sort(dim=0).values, a.sort(dim=0).values)


@pytest.mark.usefixtures("small")
def test_operands_that_fit_and_results_that_do_not():
    x = torch.arange(1000.0)
    managed = x.to("managed")
    assert same(torch.outer(managed, managed), torch.outer(x, x))
    assert same(torch.arange(1 << 20, device="managed"), torch.arange(1 << 20))
    assert same(managed.repeat(1000), x.repeat(1000))
    assert same(torch.cdist(managed[:, None], managed[:, None]), torch.cdist(x[:, None], x[:, None]))
    torch.manual_seed(3)
    dropped = nn.functional.dropout(managed.repeat(300), 0.5)  # 1.2 MiB, and as much again, and the mask.
    assert 0.4 < (dropped == 0).double().mean().item() < 0.6


@pytest.mark.usefixtures("small")
def test_a_layer_larger_than_every_accelerator_trains():
    def train(device: str) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.Linear(1024, 4))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
        x = matrix(3, 8, 64).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    for ours, plain in zip(train("managed"), train("cpu"), strict=True):
        assert torch.equal(ours, plain)
    assert ops_at("host") > 0 and ops_at("sim:0") + ops_at("sim:1") > 0


@pytest.mark.usefixtures("small")
def test_one_warning_names_the_operator_and_the_setting():
    a = matrix(1).to("managed")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.linalg.vector_norm(a, 3)
    lines = [str(w.message) for w in said if "runs on the host" in str(w.message)]
    assert len(lines) == 1, lines
    assert (
        "aten::linalg_vector_norm runs on the host: its operands of 4.0 MiB are more than the 2.0 MiB of"
        in lines[0]
    )
    assert "soft_placement=False" in lines[0]


def test_what_the_host_lacks_is_told_once(configure: Callable[[str], None]):
    configure("sim:1MiB,host:1MiB")
    kept: list[torch.Tensor] = []
    with pytest.raises(torch.OutOfMemoryError, match="host is out of memory") as refused:
        while True:
            kept.append(torch.ones(1 << 16, device="managed"))
    assert str(refused.value).count("host is out of memory") == 1
    assert "add a disk node" in str(refused.value) and len(kept) == 8


def test_nothing_is_said_of_the_host_where_it_cannot_run_it_either(configure: Callable[[str], None]):
    configure("sim:2x1MiB,host:512KiB")
    parts = []
    for node in ("sim:0", "sim:1"):
        with innkeeper.on(node):
            parts.append(torch.ones(448, 448, device="managed"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(torch.OutOfMemoryError, match="host is out of memory"):
            torch.mm(*parts)
    assert all(x.sum() == 448 * 448 for x in parts), "nothing is lost"


def test_operands_that_share_memory_count_once(configure: Callable[[str], None]):
    configure("sim:1x4MiB,host:64MiB")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = torch.empty(3, 1, 4, 128, 256, device="managed").normal_()  # 1.5 MiB
        q, k, v = whole.unbind()
        large = torch.empty(700, 700, device="managed").fill_(1)  # 1.9 MiB
        del whole
        nn.functional.scaled_dot_product_attention(q, k, v)
        torch.addmm(large, large, large)
        torch.cat([large[:100]] * 3)  # 5.6 MiB, if each had its own bytes.
    assert ops_at("host") == 0


def test_nothing_is_said_where_the_host_has_no_space_for_the_results(configure: Callable[[str], None]):
    configure("sim:1x4MiB,host:16MiB")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.ones(6 << 18, device="managed")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError) as refused:
                torch.cat([x, x])
            said = str(refused.value)
            assert "more than the 4.0 MiB of sim:0; nor can the host run it: host is out of memory" in said
            assert "of which 0 B pinned by the user or escaped" in said, "by its own operands of before"
            del refused
        with pytest.raises(
            torch.OutOfMemoryError, match=r"MiB of sim:0; nor can the host run it: host is out of"
        ):
            torch.zeros(20 << 18, device="managed")
    assert x.sum() == x.numel()


def test_an_operator_that_neither_a_gpu_nor_the_host_has(configure: Callable[[str], None]):
    configure("sim:1MiB,host:64MiB")
    library = torch.library.Library("neither", "DEF")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", torch.empty_like, "Meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotImplementedError, match="sim:0 has no kernel for it, nor has the host"):
            torch.ops.neither.f(torch.ones(3, device="managed"))
        with pytest.raises(NotImplementedError, match=r"operands of 4\.0 MiB .* and the host has no kernel"):
            torch.ops.neither.f(torch.empty(1 << 20, device="managed"))


@pytest.mark.usefixtures("small")
def test_without_soft_placement_it_is_an_error():
    a = matrix(1).to("managed")
    manager = innkeeper.manager()
    assert manager.soft_placement
    manager.soft_placement = False
    for operator in (
        lambda: torch.zeros(1 << 20, device="managed"),
        lambda: a + 1,
        lambda: a @ a,
        lambda: torch.arange(1 << 20, device="managed"),
    ):
        with pytest.raises(torch.OutOfMemoryError, match=r"MiB asked, .* of its budget of 2\.0 MiB"):
            operator()
    manager.soft_placement = True
    assert same(a, matrix(1)), "nothing is lost"


def test_the_setting_comes_from_the_environment_or_from_configure(run_python: RunProgram):
    program = """
import torch, innkeeper
print(innkeeper.manager().soft_placement)
innkeeper.configure("sim:1MiB,host:64MiB", soft_placement=True)
print(innkeeper.manager().soft_placement, torch.ones(1 << 20, device="managed").sum().item())
innkeeper.configure("sim:1MiB,host:64MiB", soft_placement=False)
print(innkeeper.manager().soft_placement)
"""
    os.environ["INNKEEPER_SOFT_PLACEMENT"] = "off"
    try:
        done = run_python("-W", "ignore", "-c", program)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["False", "True", "1048576.0", "False"]
        os.environ["INNKEEPER_SOFT_PLACEMENT"] = "maybe"
        done = run_python("-c", "import torch, innkeeper; torch.ones(1, device='managed')")
    finally:
        del os.environ["INNKEEPER_SOFT_PLACEMENT"]
    assert done.stderr.strip().splitlines()[-1] == (
        'ValueError: INNKEEPER_SOFT_PLACEMENT: "maybe": expected on or off'
    )


BY_VECTORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "silu": nn.functional.silu,
    "elu": nn.functional.elu,
    "gelu": nn.functional.gelu,
    "gelu, tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "exp2": torch.exp2,
    "pow": lambda x: x.abs().pow(2.5),
    "log": lambda x: x.abs().log(),
    "atan2": lambda x: torch.atan2(x, x.flip(0)),
    "half": lambda x: x.to(torch.bfloat16).sigmoid(),
    "double": lambda x: x.double().sigmoid(),
    "channels last": lambda x: (
        x[:900_000].view(9, 4, 100, 250).to(memory_format=torch.channels_last).sigmoid()
    ),
    "transposed": lambda x: x[:900_000].view(1000, 900).t().sigmoid(),
    "transposed gelu": lambda x: nn.functional.gelu(x[:900_000].view(1000, 900).t()),
    "broadcast": lambda x: torch.atan2(x[:999_999].view(9009, 111), x[:111]),
    "into itself": lambda x: x.clone().sigmoid_(),
    "out": lambda x: torch.sigmoid(x, out=torch.empty_like(x)),
    "odd": lambda x: x[1:-1].sigmoid(),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("operator", BY_VECTORS.values(), ids=BY_VECTORS.keys())
def test_the_bits_are_those_of_the_whole(operator: Callable[[torch.Tensor], torch.Tensor], threads: int):
    """CPU kernels compute elements outside full vectors by another formula, and each thread has some."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.randn(1_000_003, generator=torch.Generator().manual_seed(3))
        assert same(operator(x.to("managed")), operator(x))
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_so_they_are_of_what_some_of_the_threads_compute(configure: Callable[[str], None], threads: int):
    """For few elements CPU kernels use fewer threads, by rules that differ between kernels."""
    configure("sim:64KiB,host:256MiB")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for count in (17_001, 30_007, 33_001, 70_003, 150_001, 300_007):
            x = torch.randn(count, generator=torch.Generator().manual_seed(count))
            for name in ("sigmoid", "silu", "pow", "gelu", "log"):
                assert same(BY_VECTORS[name](x.to("managed")), BY_VECTORS[name](x)), (name, count)
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("small")
def test_results_that_must_be_resized():
    a = matrix(1)
    for shape in ((0,), (5,), (2, 2)):
        out, plain = torch.empty(shape, device="managed"), torch.empty(shape)
        assert same(torch.add(a.to("managed"), 1, out=out), torch.add(a, 1, out=plain))
        assert same(out, plain)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: torch.mm(x, x.t(), out=out),
        lambda x, out: torch.cumsum(x[:1, :1].expand(1000, 1000), 0, out=out),
        lambda x, out: torch.outer(x[:, 0], x[:, 1], out=out),
        lambda x, out: torch.cat([x] * 300, out=out),
    ],
    ids=["mm", "cumsum", "outer", "cat"],
)
def test_an_out_that_must_grow_beyond_the_accelerators(call: Callable[..., torch.Tensor], size: int):
    x = matrix(1, 1000, 4)
    out, plain = torch.empty(size, device="managed"), torch.empty(size)
    assert same(call(x.to("managed"), out), call(x, plain))
    assert same(out, plain)


@pytest.mark.usefixtures("small")
def test_operands_that_overlap_are_refused_as_ever():
    a = matrix(1).to("managed")
    before = a.cpu()
    for call in (lambda: a[1:].add_(a[:-1]), lambda: a.add_(a[0]), lambda: a.expand(2, 1024, 1024).add_(1)):
        with pytest.raises(RuntimeError, match=r"refers? to a single memory location"):
            call()
    assert same(a, before)
    assert same(a.add_(a), before + before)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("large", [False, True])
def test_results_beside_operands_that_fit_alone(large: bool):
    x = matrix(1, 64 if large else 16, 32, 600)  # The smaller one has 1.2 MiB of an accelerator's 2.
    norm, plain = nn.BatchNorm1d(32).to("managed"), nn.BatchNorm1d(32)
    assert same(norm(x.to("managed")).detach(), plain(x).detach())
    assert same(norm.running_var, plain.running_var) and norm.num_batches_tracked.item() == 1
    y = matrix(2, 320 * KIB)
    managed = y.to("managed")
    assert same(managed.resize_(900 * KIB)[: 320 * KIB], y)


@pytest.mark.usefixtures("small")
def test_what_is_drawn_is_drawn_once():
    weights = torch.rand(10)
    torch.manual_seed(1)
    expected = torch.multinomial(weights, 1 << 20, replacement=True), torch.rand(4)
    torch.manual_seed(1)
    got = torch.multinomial(weights.to("managed"), 1 << 20, replacement=True), torch.rand(4, device="managed")
    assert all(same(a, b) for a, b in zip(got, expected, strict=True))
    x = matrix(1, 200 * KIB)

    def rrelu(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(2)
        noise = torch.zeros_like(x)
        return torch.ops.aten.rrelu_with_noise(x, noise, training=True), noise

    assert all(same(a, b) for a, b in zip(rrelu(x.to("managed")), rrelu(x), strict=True))
    generator, plain = torch.Generator("managed").manual_seed(4), torch.Generator().manual_seed(4)
    drawn = torch.multinomial(weights.to("managed"), 1 << 20, True, generator=generator)
    assert same(drawn, torch.multinomial(weights, 1 << 20, True, generator=plain))
    assert (
        torch.rand(3, generator=generator, device="managed").tolist()
        == torch.rand(3, generator=plain).tolist()
    )


def test_slices_are_of_the_largest_accelerator(configure: Callable[[str], None]):
    configure("sim:1KiB,sim:2MiB,host:256MiB")
    x = matrix(1)
    managed = x.to("managed")
    innkeeper.manager().reset_stats()
    assert same(managed.exp(), x.exp())
    assert ops_at("sim:0") + ops_at("sim:1") + ops_at("host") < 200
    del managed
