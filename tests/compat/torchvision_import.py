"""Makes the import of torchvision succeed where its operators cannot load.

PyPI's torchvision is built for CUDA, and with a PyTorch for CPUs its operators do not load. Its import fails
at two of them, which no model here calls.
"""

from __future__ import annotations

import contextlib
import importlib

import torch


def make_importable() -> None:
    """Imports torchvision, with definitions of its two missing operators where they did not load.

    Call this before the import of any library that imports torchvision itself: its first failed import leaves
    parts of torchvision behind.
    """
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)


_kept: list[torch.library.Library] = []
"""A library's definitions end with it."""
