"""PyTorch's settings for the whole process that decide the bits of kernels' results, such as oneDNN's switch.

Before one of them changes, the engine recomputes all discarded blocks: src/torch/operator/process_settings.h.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from innkeeper import _C
from innkeeper.torch_patches.patch import patch

SETTERS = (
    "_set_mkldnn_enabled",
    "_set_mkldnn_deterministic",
    "_set_nnpack_enabled",
    "_set_onednn_allow_tf32",
    "_set_deterministic_algorithms",
    "_set_deterministic_fill_uninitialized_memory",
    "_set_float32_matmul_precision",
    "_set_fp32_precision_setter",
    "_set_cpu_allow_fp16_reduced_precision_reduction",
    "_set_math_sdp_allow_fp16_bf16_reduction",
    "_set_qengine",
    "_set_linalg_preferred_backend",
    "_set_cudnn_enabled",
    "_set_cudnn_benchmark",
    "_set_cudnn_deterministic",
    "_set_cudnn_allow_tf32",
    "_set_cublas_allow_tf32",
    "_set_cublas_allow_fp16_accumulation",
    "_set_cublas_allow_fp16_reduced_precision_reduction",
    "_set_cublas_allow_bf16_reduced_precision_reduction",
)
"""Of torch._C; those of them that this PyTorch has."""


def install() -> None:
    """Has PyTorch's setters tell the engine. Once."""
    for name in SETTERS:
        if hasattr(torch._C, name):
            patch(f"torch._C.{name}", _telling)
    # Attributes as torch.backends.mkldnn.enabled hold the setters that they call.
    patch("torch.backends.ContextProp.__set__", _telling)


def _telling(setter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def change(*args: Any, **kwargs: Any) -> Any:
        under_way = _C.SettingChange()
        try:
            return setter(*args, **kwargs)
        finally:
            del under_way

    return change
