"""Loads the fake GPU's kernels whenever PyTorch is imported (an entry point of torch.backends)."""

from __future__ import annotations

import os


def load() -> None:
    """Called by PyTorch at the end of its import."""
    import torch

    torch.ops.load_library(os.environ["FAKE_CUDA_KERNELS"])
    # Attention is chosen past the dispatcher, and only the plain one is here; nor is cuDNN.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.enabled = False
