"""Code that runs on three simulated GPUs as a program made for CUDA, with short helper names for checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from managed_scripts import Scripts

BEGIN = """
import torch, warnings
import torch.cuda.comm as comm
from torch import nn

warnings.simplefilter("ignore")

def raises(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}: {words}")

def at(tensors):
    return [x.get_device() for x in tensors]
"""

Run = Callable[[str], list[str]]


@pytest.fixture
def lines(scripts: Scripts) -> Run:
    """Runs code with three GPUs, and returns the lines that it printed."""
    return lambda code: scripts.ok(BEGIN + code, INNKEEPER_NODES="sim:3x4MiB,host:256MiB").splitlines()
