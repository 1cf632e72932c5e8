"""Libraries that choose a device themselves, from lists of devices: none uses the CPU without a word.

Where a library has a setting for it, ``import innkeeper`` makes managed the choice. Where it has a list and
no setting, an adapter does (a module here of the library's name), no sooner than the library is imported;
``INNKEEPER_LIBRARIES=off`` leaves all of them as they are. Where one computes on the CPU all the same, and
nothing of the program is managed, a warning says once what to write: a hook of PyTorch's for modules looks,
added when such a library is imported, and taken away after the first calls.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import warnings
from types import ModuleType
from typing import Any

import torch
from innkeeper import _C, launch
from innkeeper._names import DEVICE
from innkeeper.integrations import imports
from innkeeper.torch_patches.patch import apply

# accelerate's setting, which transformers' Trainer and TRL also follow
ACCELERATE_DEVICE = "ACCELERATE_TORCH_DEVICE"

_SWITCH = "INNKEEPER_LIBRARIES"
_SETTINGS = {ACCELERATE_DEVICE: DEVICE}
_ADAPTERS = {
    "accelerate": "accelerate",
    "cupy": "cupy",
    "lightning": "lightning",
    "lightning_fabric": "lightning",
    "numba": "numba",
    "pytorch_lightning": "lightning",
    "safetensors": "safetensors",
    "transformers": "transformers",
    "triton": "triton",
}
# Packages and modules that want more than the name of a device: in managed runs, too, where libraries find
# cuda.
_NEED_MORE = {"triton", "transformers.modeling_utils"}
_BY_SCRIPT = "run the script by innkeeper run --managed"
# Callers of modules, by the beginning of the caller's name, with the code to write there.
_CALLERS = {
    "transformers.pipelines.": f"pipeline(..., device='{DEVICE}')",
    "transformers.trainer": f"os.environ['{ACCELERATE_DEVICE}'] = '{DEVICE}'",
    "accelerate.": f"os.environ['{ACCELERATE_DEVICE}'] = '{DEVICE}'",
    "diffusers.pipelines.": f"pipe.to('{DEVICE}')",
    "sentence_transformers.": f"SentenceTransformer(..., device='{DEVICE}')",
    "lightning.": f"Trainer(accelerator='{DEVICE}')",
    "lightning_fabric.": f"Fabric(accelerator='{DEVICE}')",
    "pytorch_lightning.": f"Trainer(accelerator='{DEVICE}')",
    "fastai.": "",
    "ultralytics.": "",
}
_PACKAGES = {name.partition(".")[0] for name in _CALLERS}
_LOOKS = 1000


def prepare() -> None:
    """Waits for the libraries. Where ``cuda_compat`` is loaded most need nothing."""
    on = _is_on()  # Now, so that a wrong word is refused where the package is imported.
    wanted = _in_managed_run if launch.is_preloaded() else functools.partial(_change, on)
    imports.after_import(wanted)


def _change(on: bool, name: str) -> imports.Adapt | None:
    """The change to a module after its import: its adapter's, and with the first module the settings."""
    adapter = _ADAPTERS.get(name.partition(".")[0]) if on else None
    adapt = None if adapter is None else _after(adapter).get(name)
    if name not in _PACKAGES:
        return adapt

    def both(module: ModuleType) -> None:
        _begin(on)
        if adapt is not None:
            adapt(module)

    return both


def _in_managed_run(name: str) -> imports.Adapt | None:
    return _change(_is_on(), name) if {name, name.partition(".")[0]} & _NEED_MORE else None


def _after(adapter: str) -> dict[str, imports.Adapt]:
    after: dict[str, imports.Adapt] = importlib.import_module(f"{__name__}.{adapter}").AFTER
    return after


def _is_on() -> bool:
    said = os.environ.get(_SWITCH) or "on"
    if said not in ("on", "off"):
        raise ValueError(f'{_SWITCH}: "{said}": expected on or off')
    return said == "on"


def _begin(on: bool) -> None:
    """Makes the settings, no sooner than a library is there: processes that this one starts inherit them."""
    if _Look.begun:
        return
    if on:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
    _Look()


class _Look:
    """Looks at the first calls of modules. Once a process."""

    begun = False

    def __init__(self) -> None:
        _Look.begun = True
        self._left = _LOOKS
        apply("torch.nn.modules.module._global_forward_pre_hooks[*]", self._begin)

    def _begin(self) -> None:
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._look)

    def _look(self, module: torch.nn.Module, inputs: Any) -> None:
        self._left -= 1
        if self._left == 0 or _C.started():
            self._hook.remove()
            return
        caller = _caller()
        if caller is None or any(p.device.type != "cpu" for p in module.parameters(recurse=False)):
            return
        self._hook.remove()
        package = caller.partition(".")[0]
        cure = f"write {_CALLERS[caller]}, or {_BY_SCRIPT}" if _CALLERS[caller] else _BY_SCRIPT
        warnings.warn(
            f"innkeeper is imported, but {package} computes on the CPU, and nothing is managed: {cure}",
            stacklevel=2,
        )


def _caller() -> str | None:
    """Which of the callers is running, if one is."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        for caller in _CALLERS:
            if name.startswith(caller):
                return caller
        frame = frame.f_back  # type: ignore[assignment]
    return None
