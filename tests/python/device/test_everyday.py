"""Everyday pieces of programs with a model on the device and all else on the CPU give the CPU's bits."""

from __future__ import annotations

from typing import Any

import pytest
from everyday import SNIPPETS
from torch.utils._pytree import tree_flatten

import torch


def run(name: str, device: str) -> Any:
    torch.manual_seed(11)
    return SNIPPETS[name](lambda module: module.to(device))


@pytest.mark.parametrize("name", SNIPPETS)
def test_it_gives_the_bits_of_the_cpu(name: str) -> None:
    expected, shape = tree_flatten(run(name, "cpu"))
    found, found_shape = tree_flatten(run(name, "managed"))
    assert shape == found_shape
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu()), (a, b)
        else:
            assert a == b


def test_there_are_forty() -> None:
    assert len(SNIPPETS) >= 40
