"""transformers: Trainer's bf16 and tf32, pipelines, and the caches of generation, on the managed device.

To support the device itself, transformers would need ``torch.accelerator`` in these functions:
``is_torch_bf16_gpu_available`` and ``is_torch_tf32_available`` (``utils/import_utils.py``),
``Pipeline.__init__`` where a number becomes a device, ``Cache.update`` where streams are CUDA's, and
continuous batching's ``get_device_and_memory_breakdown``, which takes the machine's memory for the device's.
``caching_allocator_warmup`` (``modeling_utils.py``) would need no less than zero for a device that has less
memory than the function leaves free.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C, managed_device
from innkeeper._names import DEVICE
from innkeeper.integrations.accelerate import chosen, load_stream, save_stream, total_budget
from innkeeper.integrations.imports import replace, replace_method


def _also_if_chosen(own: Any) -> Any:
    @functools.wraps(own)
    def asked() -> bool:
        return chosen() or bool(own())

    return asked


def _adapt_import_utils(import_utils: ModuleType) -> None:
    # Where no node has TF32 all is computed in full: the setting allows less, and asks for nothing.
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        replace(import_utils, name, _also_if_chosen)


def _on_managed(own: Any) -> Any:
    signature = inspect.signature(own)

    @functools.wraps(own)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        call = signature.bind(self, *given, **named)
        device = call.arguments.get("device")
        on_gpu = device is None or (isinstance(device, int) and device >= 0)
        if on_gpu and chosen() and getattr(call.arguments.get("model"), "hf_device_map", None) is None:
            call.arguments["device"] = torch.device(DEVICE)
        own(*call.args, **call.kwargs)

    return __init__


def _adapt_pipelines(base: ModuleType) -> None:
    replace_method(base, "Pipeline.__init__", _on_managed)


def _adapt_trainer(trainer: ModuleType) -> None:
    """Checkpoints have the device's random stream: a run that is taken up goes on as it would have."""

    def saving(own: Any) -> Any:
        @functools.wraps(own)
        def _save_rng_state(self: Any, output_dir: str) -> None:
            own(self, output_dir)
            save_stream(output_dir, self.args.process_index)

        return _save_rng_state

    def loading(own: Any) -> Any:
        @functools.wraps(own)
        def _load_rng_state(self: Any, checkpoint: str | None) -> None:
            own(self, checkpoint)
            if checkpoint is not None:
                load_stream(checkpoint, self.args.process_index)

        return _load_rng_state

    replace_method(trainer, "Trainer._save_rng_state", saving)
    replace_method(trainer, "Trainer._load_rng_state", loading)


def _pages_itself(own: Any) -> Any:
    """An offloaded cache is one that the device pages: it needs no streams and copies of its own."""
    signature = inspect.signature(own)

    @functools.wraps(own)
    def __init__(self: Any, *given: Any, **named: Any) -> None:
        call = signature.bind(self, *given, **named)
        if chosen() and "offloading" in call.arguments:
            call.arguments["offloading"] = False
        own(*call.args, **call.kwargs)

    return __init__


def _adapt_caches(cache_utils: ModuleType) -> None:
    replace_method(cache_utils, "Cache.__init__", _pages_itself)


def _memory(own: Any) -> Any:
    @functools.wraps(own)
    def get_device_and_memory_breakdown() -> tuple[torch.device, int, int, int]:
        if not chosen():
            return own()
        free, total = managed_device.mem_get_info()
        return torch.device(DEVICE), total, total - free, total - free

    return get_device_and_memory_breakdown


def _adapt_batching(utils: ModuleType) -> None:
    replace(utils, "get_device_and_memory_breakdown", _memory)


def _with_host(own: Any) -> Any:
    """A cache of default size fits the GPUs; one of a given size may be larger, because it is paged."""

    @functools.wraps(own)
    def _check_footprint(self: Any, *given: Any, **named: Any) -> Any:
        if chosen():
            self.available_memory = total_budget()
        return own(self, *given, **named)

    return _check_footprint


def _adapt_paged_cache(cache: ModuleType) -> None:
    replace_method(cache, "PagedAttentionMemoryHandler._check_footprint", _with_host)


def _not_of_managed(own: Any) -> Any:
    """Memory for a whole model is not taken ahead: of a small node's it would be less than nothing."""

    @functools.wraps(own)
    def caching_allocator_warmup(model: Any, expanded_device_map: dict[str, Any], *given: Any) -> Any:
        places = {torch.device(place) for place in expanded_device_map.values() if place != "disk"}
        if not any(_C.is_managed(place) for place in places):
            own(model, expanded_device_map, *given)

    return caching_allocator_warmup


def _adapt_loading(modeling_utils: ModuleType) -> None:
    replace(modeling_utils, "caching_allocator_warmup", _not_of_managed)


AFTER = {
    "transformers.cache_utils": _adapt_caches,
    "transformers.generation.continuous_batching.cache": _adapt_paged_cache,
    "transformers.generation.continuous_batching.requests": _adapt_batching,  # up to 5.0
    "transformers.generation.continuous_batching.utils": _adapt_batching,
    "transformers.modeling_utils": _adapt_loading,
    "transformers.trainer": _adapt_trainer,
    "transformers.utils.import_utils": _adapt_import_utils,
    "transformers.pipelines.base": _adapt_pipelines,
}
