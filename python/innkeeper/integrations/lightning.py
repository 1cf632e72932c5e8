"""Lightning: Trainer and Fabric on the managed device, by ``accelerator="auto"`` and by its name.

To support the device itself, Lightning would need:

- an accelerator and a ``SingleDeviceStrategy`` for ``torch.accelerator``'s device, in its registries;
- that device in ``_choose_auto_accelerator`` of both connectors, which ask CUDA, MPS and XLA only;
- the accelerator asked in ``_choose_strategy``, which has a list of names;
- the strategy's device asked in ``_check_and_init_precision``, where all but the CPU and MPS are CUDA;
- ``determine_ddp_device_ids`` giving no ids where the device is not CUDA's: its caller makes a CUDA stream;
- that device's random state in ``_collect_rng_states``, and its name in ``_log_device_info``.

The older packages, ``pytorch_lightning`` on ``lightning_fabric``, have the same names.
"""

from __future__ import annotations

import functools
import warnings
from types import ModuleType
from typing import Any

import torch
from innkeeper import managed_device
from innkeeper._names import DEVICE
from innkeeper.integrations.imports import Adapt, add_to_lists, replace, replace_method
from innkeeper.torch_patches.patch import apply, put

STRATEGY = f"single_{DEVICE}"  # named like Lightning's own "single_device", which is the CPU
_RANDOM = f"torch.{DEVICE}"


class Managed:
    """The methods of an accelerator of Lightning's, for either of its two base classes."""

    def setup_device(self, device: torch.device) -> None:
        """Refuses another device, as Lightning's own accelerators do."""
        if device.type != DEVICE:
            raise ValueError(f"Device should be {DEVICE}, got {device} instead.")

    def teardown(self) -> None:
        """Gives memory back that is kept for later, as CUDA's accelerator does."""
        managed_device.empty_cache()

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """The figures that DeviceStatsMonitor logs."""
        return managed_device.memory_stats(device)

    @staticmethod
    def parse_devices(devices: Any) -> int:
        """Number of processes: each has one managed device, with all GPUs that it may use."""
        if isinstance(devices, str):
            listed = [int(one) for one in devices.split(",") if one.strip()]
            devices = listed if "," in devices or not listed else listed[0]
        if devices == -1 or (not isinstance(devices, int) and list(devices) == [0]):
            return 1
        if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
            raise ValueError(
                f"devices={devices!r}: there is one {DEVICE} device, index 0, for all GPUs; "
                "a number is one of processes"
            )
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        """One for each process, with the index that tensors name."""
        return [torch.device(DEVICE, 0)] * devices

    @staticmethod
    def auto_device_count() -> int:
        """One process, for any number of GPUs."""
        return 1

    @staticmethod
    def is_available() -> bool:
        """Always: the host computes if there is no GPU."""
        return managed_device.is_available()

    @staticmethod
    def name() -> str:
        """As in the registry."""
        return DEVICE


def _register_accelerator(registry: str) -> Adapt:
    def adapt(accelerators: ModuleType) -> None:
        base, choices = getattr(accelerators, "Accelerator", None), getattr(accelerators, registry, None)
        if base is None or choices is None or DEVICE in choices:
            return
        made = type("ManagedAccelerator", (Managed, base), {"__module__": accelerators.__name__})
        # Pickle looks for it there, since spawned processes receive it.
        put(f"{accelerators.__name__}.{made.__name__}", made)
        apply(
            f"{accelerators.__name__}.{registry}[{DEVICE}]",
            lambda: choices.register(DEVICE, made, description=made.__name__),
        )

    return adapt


def _register_strategy(registry: str) -> Adapt:
    def adapt(strategies: ModuleType) -> None:
        single = getattr(strategies, "SingleDeviceStrategy", None)
        choices = getattr(strategies, registry, None)
        if single is None or choices is None or STRATEGY in choices:
            return
        there = torch.device(DEVICE, 0)
        apply(
            f"{strategies.__name__}.{registry}[{STRATEGY}]",
            lambda: choices.register(STRATEGY, single, description=f"device {DEVICE}", device=there),
        )

    return adapt


def _auto(own: Any) -> Any:
    def _choose_auto_accelerator(self: Any) -> str:
        strategy = getattr(self, "_strategy_flag", "auto")
        named = getattr(strategy, "_root_device", None)  # a strategy for one device, made by the script
        elsewhere = strategy == "single_device" or (named is not None and named.type != DEVICE)
        # Bound in the original's way: as a static method, but not in versions up to 2.3.
        return own.__get__(self, type(self))() if elsewhere else DEVICE

    return _choose_auto_accelerator


def _by_name(own: Any) -> Any:
    # An accelerator object is compared with names afterwards, and would be taken for CUDA's or the CPU's.
    def _set_parallel_devices_and_init_accelerator(self: Any) -> None:
        own(self)
        if isinstance(self.accelerator, Managed):
            self._accelerator_flag = DEVICE

    return _set_parallel_devices_and_init_accelerator


def _mixed(own: Any) -> Any:
    # It makes autocast and scaler for CUDA where the accelerator is none that it knows.
    def _check_and_init_precision(self: Any) -> Any:
        if self._accelerator_flag != DEVICE:
            return own(self)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GradScaler is enabled, but CUDA is not available")
            made = own(self)
        given = [getattr(self, name, None) for name in ("_precision_plugin_flag", "_precision_instance")]
        if getattr(made, "device", None) != "cuda" or any(made is one for one in given):
            return made
        scaler = None if made.scaler is None else torch.amp.GradScaler(DEVICE)
        return type(made)(made.precision, DEVICE, scaler)

    return _check_and_init_precision


def _adapt_connector(name: str) -> Adapt:
    def adapt(module: ModuleType) -> None:
        replace_method(module, f"{name}._choose_auto_accelerator", _auto)
        replace_method(module, f"{name}._set_parallel_devices_and_init_accelerator", _by_name)
        replace_method(module, f"{name}._check_and_init_precision", _mixed)
        add_to_lists(module, f"{name}._choose_strategy", DEVICE, beside="mps")

    return adapt


def _no_ids(own: Any) -> Any:
    def determine_ddp_device_ids(self: Any) -> Any:
        return None if self.root_device.type == DEVICE else own(self)

    return determine_ddp_device_ids


def _adapt_ddp(ddp: ModuleType) -> None:
    for name in ("determine_ddp_device_ids", "_determine_ddp_device_ids"):
        replace_method(ddp, f"DDPStrategy.{name}", _no_ids)


def _collect_random(own: Any) -> Any:
    @functools.wraps(own)
    def _collect_rng_states(include_cuda: bool = True) -> dict[str, Any]:
        states: dict[str, Any] = own(include_cuda)
        if include_cuda and managed_device.is_initialized():
            states[_RANDOM] = managed_device.get_rng_state()
        return states

    return _collect_rng_states


def _set_random(own: Any) -> Any:
    @functools.wraps(own)
    def _set_rng_states(rng_state_dict: dict[str, Any]) -> None:
        own(rng_state_dict)
        if _RANDOM in rng_state_dict:
            managed_device.set_rng_state(rng_state_dict[_RANDOM])

    return _set_rng_states


def _adapt_seed(seed: ModuleType) -> None:
    # Trainer's check before training must draw no number from the training's stream.
    if hasattr(seed, "_collect_rng_states") and hasattr(seed, "_set_rng_states"):
        replace(seed, "_collect_rng_states", _collect_random)
        replace(seed, "_set_rng_states", _set_random)


def _adapt_setup(setup: ModuleType) -> None:
    inform = getattr(setup, "rank_zero_info", None)
    if inform is None:
        return

    # Lightning's lines say that no GPU is used, and where there is CUDA how to leave the managed device.
    def say(own: Any) -> Any:
        @functools.wraps(own)
        def _log_device_info(trainer: Any) -> None:
            if isinstance(trainer.accelerator, Managed):
                inform(f"Device used: {DEVICE}")
            else:
                own(trainer)

        return _log_device_info

    replace(setup, "_log_device_info", say)


AFTER: dict[str, Adapt] = {}
for _fabric in ("lightning.fabric", "lightning_fabric"):
    AFTER[f"{_fabric}.accelerators"] = _register_accelerator("ACCELERATOR_REGISTRY")
    AFTER[f"{_fabric}.strategies"] = _register_strategy("STRATEGY_REGISTRY")
    AFTER[f"{_fabric}.strategies.ddp"] = _adapt_ddp
    AFTER[f"{_fabric}.connector"] = _adapt_connector("_Connector")
    AFTER[f"{_fabric}.utilities.seed"] = _adapt_seed
for _trainer in ("lightning.pytorch", "pytorch_lightning"):
    AFTER[f"{_trainer}.accelerators"] = _register_accelerator("AcceleratorRegistry")
    AFTER[f"{_trainer}.strategies"] = _register_strategy("StrategyRegistry")
    AFTER[f"{_trainer}.strategies.ddp"] = _adapt_ddp
    AFTER[f"{_trainer}.trainer.connectors.accelerator_connector"] = _adapt_connector("_AcceleratorConnector")
    AFTER[f"{_trainer}.trainer.setup"] = _adapt_setup
