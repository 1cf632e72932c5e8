"""Random numbers on a GPU come from the managed stream: the seed decides them, not memory."""

from __future__ import annotations

import innkeeper
import pytest
import torch.nn.functional as F
from gpu_device import MIB

import torch


def draw() -> torch.Tensor:
    torch.managed.manual_seed(7)
    x = torch.randn(1000, device="managed")
    return torch.cat([x, F.dropout(x, 0.3), torch.rand(1000, device="managed")]).cpu()


def test_a_seed_gives_the_same_numbers_whatever_is_resident() -> None:
    first = draw()
    ballast = [torch.zeros(48 * MIB // 4, device="managed") for _ in range(8)]
    assert innkeeper.stats()["evictions"] > 0
    assert torch.equal(first, draw())
    assert len(ballast) == 8


def test_the_state_can_be_saved_and_restored() -> None:
    torch.managed.manual_seed(3)
    state = torch.managed.get_rng_state()
    first = torch.rand(100, device="managed").cpu()
    second = torch.rand(100, device="managed").cpu()
    torch.managed.set_rng_state(state)
    assert torch.equal(torch.rand(100, device="managed").cpu(), first)
    assert not torch.equal(first, second)


@pytest.mark.real
def test_the_programs_own_cuda_generator_is_not_disturbed() -> None:
    torch.cuda.manual_seed(5)
    expected = torch.rand(10, device="cuda").cpu()
    torch.cuda.manual_seed(5)
    torch.rand(1000, device="managed")
    assert torch.equal(torch.rand(10, device="cuda").cpu(), expected)


def test_a_generator_of_its_own() -> None:
    one, other = (torch.Generator(device="managed").manual_seed(11) for _ in range(2))
    assert torch.equal(
        torch.rand(64, device="managed", generator=one).cpu(),
        torch.rand(64, device="managed", generator=other).cpu(),
    )


@pytest.mark.real
def test_the_dropout_of_attention_draws_from_the_stream() -> None:
    q, k, v = (torch.randn(2, 4, 128, 64, dtype=torch.bfloat16, device="managed") for _ in range(3))

    def attend(seed: int) -> torch.Tensor:
        torch.managed.manual_seed(seed)
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).cpu()

    torch.cuda.manual_seed(5)
    first, again, other = attend(1), attend(1), attend(2)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    drawn = torch.rand(10, device="cuda").cpu()
    torch.cuda.manual_seed(5)
    assert torch.equal(drawn, torch.rand(10, device="cuda").cpu())  # The program's own generator is restored.


def test_attention_without_dropout_draws_nothing() -> None:
    q = torch.randn(2, 4, 32, 16, device="managed")
    state = torch.managed.get_rng_state()
    F.scaled_dot_product_attention(q, q, q)
    assert torch.equal(torch.managed.get_rng_state(), state)
