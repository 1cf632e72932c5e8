"""A GPU, the host and a disk that are full to the last byte: all can still be read, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import innkeeper
import pytest

import torch
from torch import Tensor

READS: dict[str, Callable[[Tensor], object]] = {
    "cpu": lambda x: x.cpu().sum().item(),
    "a cast": lambda x: x.to("cpu", torch.float64).sum().item(),
    "an element": lambda x: x[5].item(),
    "numbers": lambda x: x[:3].tolist(),
    "numpy": lambda x: x.cpu().numpy().sum(),
    "a strided view": lambda x: x[::2].cpu().sum().item(),
    "transposed": lambda x: x.view(512, 512).t().cpu()[3, 4].item(),
    "copied into": lambda x: torch.empty(1 << 18).copy_(x)[7].item(),
}


@pytest.fixture
def full(configure: Callable[[str], None], tmp_path: Path) -> Iterator[list[Tensor]]:
    """As many tensors of one MiB as fit, each with its own number and one element that differs."""
    configure(f"sim:8MiB,host:8MiB,disk:{tmp_path}:9MiB")
    tensors: list[Tensor] = []
    with pytest.raises(torch.OutOfMemoryError, match="disk is out of memory"):
        while len(tensors) < 100:
            tensors.append(torch.full((1 << 18,), float(len(tensors)), device="managed"))
    assert len(tensors) == 25
    yield tensors
    tensors.clear()


@pytest.mark.parametrize("read", READS)
def test_reading_needs_no_space(full: list[Tensor], read: str) -> None:
    before = [innkeeper.where(x) for x in full]
    for i, x in enumerate(full):
        assert READS[read](x) == READS[read](torch.full((1 << 18,), float(i)))
    assert [innkeeper.where(x) for x in full] == before, "nothing has moved for it"
    innkeeper._C.check_invariants()


def test_what_is_read_may_be_freed_and_written_again(full: list[Tensor], tmp_path: Path) -> None:
    torch.save([x.cpu() for x in full], tmp_path / "all.pt")
    for i, x in enumerate(torch.load(tmp_path / "all.pt")):
        assert x.unique().tolist() == [float(i)]
    del full[:4]
    full[-1].add_(1)
    assert full[-1].cpu().unique().tolist() == [25.0]


def test_an_operator_that_computes_says_what_is_full(full: list[Tensor]) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"9\.0 MiB of its budget of 9\.0 MiB in use"):
        full[0] + full[1]
    assert full[0].cpu().unique().tolist() == [0.0]
