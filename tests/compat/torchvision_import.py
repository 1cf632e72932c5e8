"""Makes the import of torchvision succeed where its operators cannot load; imported before torchvision's
users.

PyPI's torchvision is built for CUDA, and with a PyTorch for CPUs its operators do not load. Its import fails
at two of them, which no model here calls.
"""

from __future__ import annotations

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    _names = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _names.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
except ImportError:
    pass
