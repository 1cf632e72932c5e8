"""safetensors reads files onto the managed device: ``load_file(path, device="managed")``, device maps.

Its ``safe_open`` has a list of names of devices in Rust, and takes an index besides, which PyTorch reads as
the accelerator's. To support the device itself, safetensors would need names of PyTorch's out-of-tree devices
in ``Device::extract`` of ``bindings/python/src/lib.rs``, passed on to ``torch.device``.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from innkeeper._names import DEVICE
from innkeeper.integrations.imports import replace

INDEX = 0


def _open_managed(own: Any) -> Any:
    class safe_open:
        __doc__ = own.__doc__
        # Pickle looks for the class under the original's name.
        __module__, __qualname__ = own.__module__, own.__qualname__

        def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **others: Any) -> Any:
            managed = str(device).partition(":")[0] == DEVICE
            return own(filename, framework, device=INDEX if managed else device, **others)

    return safe_open


def _adapt(safetensors: ModuleType) -> None:
    replace(safetensors, "safe_open", _open_managed)


AFTER = {"safetensors": _adapt}
