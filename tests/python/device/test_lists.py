"""Operators over lists of tensors: cut by node and by size, each element written once, or none."""

from __future__ import annotations

from collections.abc import Callable

import innkeeper
import pytest
from budget_fixture import same

import torch
from torch import Tensor, nn


def counting(n: int, size: int = 1000) -> Tensor:
    return torch.arange(float(size)) + n


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}], ids=["default", "foreach", "fused"])
def test_two_layers_pinned_to_two_gpus(kind: type[torch.optim.Optimizer], how: dict[str, bool]):
    def train(device: str) -> list[Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8)).to(device)
        if device == "managed":
            innkeeper.pin(model[0], "sim:0")
            innkeeper.pin(model[2], "sim:1")
        optimizer = kind(model.parameters(), lr=1e-2, **how)
        x = torch.linspace(-1, 1, 16 * 32).view(16, 32).to(device)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if device == "managed":
            assert innkeeper.where(model[0].weight)[0] == "sim:0"
            assert innkeeper.where(model[2].weight)[0] == "sim:1"
            innkeeper.unpin(model[0])
            innkeeper.unpin(model[2])
        return [p.detach().cpu() for p in model.parameters()]

    # PyTorch chooses the implementation by device, and another one on the CPU.
    if how == {}:
        train("managed")
        return
    for ours, plain in zip(train("managed"), train("cpu"), strict=True):
        assert torch.equal(ours, plain)


def test_results_stand_in_the_order_of_the_elements():
    plain = [counting(n, 100 * (1 + n % 7)) for n in range(40)]
    managed = []
    for n, x in enumerate(plain):
        with innkeeper.on(f"sim:{n % 2}"):
            managed.append(torch.empty_like(x, device="managed").copy_(x))
    for n in (3, 8):
        innkeeper.pin(managed[n], f"sim:{n % 2}")
    scalars = [float(n) for n in range(40)]
    tensor = torch.tensor(scalars)
    for ours, theirs in (
        (torch._foreach_add(managed, scalars), torch._foreach_add(plain, scalars)),
        (torch._foreach_mul(managed, managed), torch._foreach_mul(plain, plain)),
        (torch._foreach_norm(managed), torch._foreach_norm(plain)),
        (
            torch._foreach_addcmul(managed, managed, managed, tensor),
            torch._foreach_addcmul(plain, plain, plain, tensor),
        ),
    ):
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    torch._foreach_addcdiv_(managed, managed, [x + 1 for x in managed], scalars)
    torch._foreach_addcdiv_(plain, plain, [x + 1 for x in plain], scalars)
    assert all(same(a, b) for a, b in zip(managed, plain, strict=True))
    for n in (3, 8):
        innkeeper.unpin(managed[n])


@pytest.mark.parametrize("soft", [False, True])
def test_an_element_that_fits_nowhere_leaves_all_as_they_were(configure: Callable[[str], None], soft: bool):
    configure("sim:64KiB,host:512KiB")
    innkeeper.manager().soft_placement = soft
    try:
        small = [torch.zeros(1000, device="managed") for _ in range(3)]
        large = torch.empty(200_000 if soft else 20_000, device="managed")  # Unwritten, so it has no memory.
        for _ in range(2):
            with pytest.raises(torch.OutOfMemoryError, match=r"element 3 .*nothing was written"):
                torch._foreach_add_([*small, large], 1)
        assert all(x.count_nonzero().item() == 0 for x in small)
        torch._foreach_add_(small, 1)
        assert all(same(x, torch.ones(1000)) for x in small)
    finally:
        innkeeper.manager().soft_placement = True


@pytest.mark.filterwarnings("ignore:innkeeper")
def test_an_element_that_fits_the_host_alone_is_computed_there(configure: Callable[[str], None]):
    configure("sim:64KiB,host:64MiB")
    plain = [torch.ones(1000), torch.ones(100_000), torch.ones(2000)]
    managed = [x.to("managed") for x in plain]
    torch._foreach_add_(managed, 1)
    torch._foreach_add_(plain, 1)
    assert all(same(a, b) for a, b in zip(managed, plain, strict=True))


def test_a_pinned_element_that_fits_its_gpu_needs_no_other_space(configure: Callable[[str], None]):
    configure("sim:64KiB,host:8MiB")
    x = torch.ones(12_000, device="managed")  # 47 of 64 KiB.
    innkeeper.pin(x, "sim:0")
    y = torch.ones(1000, device="managed")
    torch._foreach_add_([x, y], 1)
    assert x.sum().item() == 24_000 and y.sum().item() == 2000
    innkeeper.unpin(x)


def test_one_tensor_twice_in_a_list():
    x = torch.zeros(100, device="managed")
    torch._foreach_add_([x, x, x], 1)
    assert x.sum().item() == 300


def accumulate(t: list[Tensor]) -> list[Tensor]:
    total = torch.zeros_like(t[0])
    torch._foreach_add_([total] * 4, [t[0], t[1], t[2][:60000], t[3]])
    return [total]


def the_last_wins(t: list[Tensor]) -> list[Tensor]:
    x, y = torch.zeros_like(t[0]), torch.zeros_like(t[0])
    torch._foreach_copy_([x, x], [t[0], t[2][:60000]])
    torch._foreach_copy_([y, y], [t[2][:60000], t[0]])
    return [x, y]


def chain(t: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_([t[0], t[1]], [t[1], t[2][:60000]])
    return t[:2]


def views_of_one(t: list[Tensor]) -> list[Tensor]:
    torch._foreach_add_([t[2][:60000], t[2][40000:]], [t[0], t[1]])
    return [t[2]]


def by_one_of_them(t: list[Tensor]) -> list[Tensor]:
    number = t[0].new_full((), 3.0)
    torch._foreach_mul_([number, *t[:3]], number)
    torch._foreach_div_([t[0], number, t[2]], number)
    return [number, *t[:3]]


def by_a_view_of_one(t: list[Tensor]) -> list[Tensor]:
    torch._foreach_mul_([t[0], t[2][1:60001], t[1]], t[2][0])
    return t[:3]


@pytest.mark.parametrize("nodes", ["sim:1x2MiB,host:64MiB", "sim:2x64MiB,host:64MiB"])
@pytest.mark.parametrize(
    "call", [accumulate, the_last_wins, chain, views_of_one, by_one_of_them, by_a_view_of_one]
)
def test_elements_that_depend_on_each_other_keep_their_order(
    configure: Callable[[str], None], call: Callable[..., list[torch.Tensor]], nodes: str
):
    configure(nodes)
    plain = [torch.randn(n) for n in (60000, 60000, 100000, 60000)]
    places = [node for node in innkeeper.manager().nodes if node.startswith("sim")]
    managed = []
    for i, x in enumerate(plain):
        with innkeeper.on(places[-1 - i % len(places)]):
            managed.append(x.to("managed"))
    results = zip(call(managed), call(plain), strict=True)
    assert all(same(got, expected) for got, expected in results)
    del managed, results


MIXED: dict[str, Callable[[list[Tensor], list[Tensor]], object]] = {
    "copy_ from the CPU": lambda ours, plain: torch._foreach_copy_(ours, plain),
    "copy_ to the CPU": lambda ours, plain: torch._foreach_copy_(plain, ours),
    "copy": lambda ours, plain: torch.ops.aten._foreach_copy(ours, plain),
    "one list": lambda ours, plain: torch._foreach_mul_([ours[0], plain[0], ours[1]], 3.0),
    "two lists": lambda ours, plain: torch._foreach_add([ours[0], plain[0]], [ours[1], plain[1]], alpha=2),
    "numbers": lambda ours, plain: torch._foreach_addcmul(
        [ours[0], plain[0]], [ours[1], plain[1]], [ours[2], plain[2]], torch.tensor([2.0, 3.0])
    ),
    "norms": lambda ours, plain: torch._foreach_norm([plain[0], ours[0]]),
}


@pytest.mark.parametrize("name", MIXED)
def test_lists_on_several_devices_are_taken_element_by_element(name: str):
    def values(found: object) -> list[Tensor]:
        return [x.cpu() for x in found] if isinstance(found, (list, tuple)) else []

    left, right = [counting(n) for n in range(3)], [counting(2 * n) for n in range(3)]
    ours, plain = [x.to("managed") for x in left], [x.clone() for x in right]
    got, expected = MIXED[name](ours, plain), MIXED[name](left, right)
    for a, b in ((got, expected), (ours, left), (plain, right)):
        assert all(same(x, y) for x, y in zip(values(a), values(b), strict=True))
    assert all(x.device.type == "managed" for x in ours) and all(x.device.type == "cpu" for x in plain)


def test_gradients_go_through_lists_on_several_devices():
    found = []
    for device in ("cpu", "managed"):
        leaves = [counting(0).requires_grad_(), counting(1).to(device).requires_grad_()]
        squares = torch._foreach_mul(leaves, [x.detach() + 1 for x in leaves])
        sum(x.sum().to(device) for x in squares).backward()
        found.append([x.grad.cpu() for x in leaves])
    assert all(same(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.usefixtures("refuse_mixed")
def test_what_does_not_fit_together_is_refused():
    ours, plain = [counting(n).to("managed") for n in range(2)], [counting(n) for n in range(2)]
    words = (
        "Expected all tensors to be on the same device, but found at least two devices, managed:0 and cpu!"
    )
    with pytest.raises(RuntimeError, match=words):
        torch._foreach_add_(ours, plain)
    states = [torch.zeros(1000, device="managed") for _ in range(2)]
    steps = [torch.zeros((), device="managed") for _ in range(2)]
    with pytest.raises(RuntimeError, match=words):
        torch._fused_adamw_(
            ours, plain, states, states, [], steps,
            amsgrad=False, beta1=0.9, beta2=0.9, eps=1.0, lr=0.1, maximize=False, weight_decay=0.0,
        )  # fmt: skip
    assert same(ours[1].cpu(), counting(1))
