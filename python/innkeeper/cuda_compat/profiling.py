"""PyTorch's profiler where a script asks it for CUDA's part and the devices are simulated.

Kernels of simulated GPUs are kernels of the CPU, and the profiler's CPU part shows them. A build of PyTorch
without CUDA would try to record an event of CUDA for each operator, and print a stack trace each time.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.profiler import ProfilerActivity

import torch
from innkeeper.cuda_compat.put import put
from innkeeper.script import note


def install() -> None:
    """Has the profiler leave CUDA's part out where it has none. Called once per process."""
    from torch.autograd.profiler import profile

    original = profile.__init__

    @functools.wraps(original)
    def begin(self: Any, *args: Any, use_cuda: bool = False, use_device: Any = None, **kwargs: Any) -> None:
        if (use_cuda or use_device == "cuda") and not _has_cuda():
            use_cuda, use_device = False, None
            note("profiler", "the profiler shows the CPU's part: kernels of these devices run there")
        original(self, *args, use_cuda=use_cuda, use_device=use_device, **kwargs)

    put(profile, __init__=begin)


def _has_cuda() -> bool:
    return ProfilerActivity.CUDA in torch.autograd._supported_activities()
