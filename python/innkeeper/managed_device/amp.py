"""Automatic mixed precision for the managed device, under torch.cuda.amp's names."""

from __future__ import annotations

import functools
from typing import Any

import torch
from innkeeper._names import DEVICE

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """``torch.amp.autocast("managed", ...)``."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__(DEVICE, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("managed", ...)``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(DEVICE, **options)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=DEVICE)
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=DEVICE)
