"""The backward pass of plain CUDA tensors in a process that has the managed device, and of both in one graph.

Work on the fake GPU runs as late as it may: a stream that does not wait for another reads bytes that are not
yet written. The tests compare gradients with the CPU's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import innkeeper
import pytest

import torch

SIZE = 64


def weights(device: str) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return [
        (torch.randn(SIZE, SIZE, generator=made) / 8).to(device).requires_grad_() for _ in range(3)
    ]  # fmt: skip


def layers(first: torch.Tensor, x: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    return ((x * first).relu() * third).square()


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for tensor, other in zip(found, expected, strict=True):
        assert tensor.grad is not None
        torch.testing.assert_close(tensor.grad.cpu(), other.grad, rtol=1e-6, atol=1e-6)


def expected() -> list[torch.Tensor]:
    own = weights("cpu")
    layers(*own).sum().backward()
    return own


@pytest.fixture(autouse=True)
def both_are_in_use() -> torch.Tensor:
    return torch.ones(SIZE, device="managed") * 2


@pytest.mark.parametrize("device", ["cuda", "managed", "cpu"])
def test_each_device_alone(device: str) -> None:
    own = weights(device)
    layers(*own).sum().backward()
    same(own, expected())


def test_forward_on_a_stream_and_backward_outside() -> None:
    own = weights("cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss = layers(*own).sum()
    loss.backward()  # Runs on the side stream; the current one waits for its end.
    same(own, expected())


def test_gradients_of_two_streams_are_added_in_order() -> None:
    own = weights("cuda")
    torch.cuda.synchronize()
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    losses = []
    for stream in (one, other):
        with torch.cuda.stream(stream):
            losses.append(layers(*own).sum())
    torch.cuda.current_stream().wait_stream(one)
    torch.cuda.current_stream().wait_stream(other)
    (losses[0] + losses[1]).backward()
    wanted = weights("cpu")
    (layers(*wanted).sum() + layers(*wanted).sum()).backward()
    same(own, wanted)


@pytest.mark.parametrize("way", [["managed"], ["cpu"], ["cpu", "managed"], ["managed", "cpu", "cuda"]])
@pytest.mark.parametrize("start", ["cuda", "managed"])
def test_a_graph_across_devices(start: str, way: list[str]) -> None:
    own = weights(start)
    x = (own[1] * own[0]).relu()
    for device in way:
        x = x.to(device) * 1.0
    (x * own[2].to(x.device)).square().sum().backward()
    same(own, expected())


def test_the_sum_on_the_cpu() -> None:
    """The engine starts with a gradient of the CPU's."""
    own = weights("cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        loss = layers(*own).cpu().sum()
    loss.backward()
    same(own, expected())


def test_gradients_that_are_requested() -> None:
    own = weights("cuda")
    found = torch.autograd.grad(layers(*own).sum(), own, create_graph=True)
    sum(gradient.square().sum() for gradient in found).backward()
    wanted = weights("cpu")
    gradients = torch.autograd.grad(layers(*wanted).sum(), wanted, create_graph=True)
    sum(gradient.square().sum() for gradient in gradients).backward()
    same(own, wanted)


def test_threads_with_a_device_each() -> None:
    def work(device: str) -> list[torch.Tensor]:
        for _ in range(20):
            own = weights(device)
            layers(*own).sum().backward()
        return own

    with ThreadPoolExecutor(3) as pool:
        for own in pool.map(work, ["cuda", "managed", "cuda"]):
            same(own, expected())


def test_managed_is_the_accelerator_of_all_others() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("managed")
    assert torch.ones(3).pin_memory().is_pinned()
    layers(*weights("cuda")).sum().backward()
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream().device == torch.device("managed:0")
    assert innkeeper.stats()["nodes"]
