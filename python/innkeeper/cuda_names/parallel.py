"""``torch.nn.DataParallel``: over one device it is the module itself."""

from __future__ import annotations

from typing import Any

from torch.utils._pytree import tree_map_only

import torch
from innkeeper.cuda_names.put import put
from torch import Tensor


def install() -> None:
    """Computes on the one device, where PyTorch would scatter by CUDA's copies. Once."""
    put(torch.nn.DataParallel, forward=_forward)
    put(torch.nn.parallel, data_parallel=_data_parallel)


def _forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    if not self.device_ids:
        return self.module(*inputs, **kwargs)
    inputs, kwargs = tree_map_only(Tensor, lambda x: x.cuda(), (inputs, kwargs))
    return self.module(*inputs, **kwargs)


def _data_parallel(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return torch.nn.DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
