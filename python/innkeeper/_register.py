"""Makes the managed device known to PyTorch, once per process."""

from __future__ import annotations

import re
import sys

from innkeeper._built_for import TORCH

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        f"innkeeper needs PyTorch {TORCH}, and {sys.executable} has none: pip install torch=={TORCH}.*"
    ) from None

DEVICE = "managed"
OLDEST_TORCH = (2, 11)  # as cmake/torch.cmake says
_UNCLAIMED = "privateuseone"  # what PyTorch calls the slot for an out-of-tree device while nobody has it


def register() -> None:
    """Loads the backend and registers ``torch.managed``. Doing it again does nothing.

    Raises:
        ImportError: innkeeper was built for another series of PyTorch, or another out-of-tree device has
            taken PyTorch's one slot for such devices.

    """
    version = re.match(r"\d+\.\d+", getattr(torch, "__version__", ""))
    found = version[0] if version is not None else "none"
    if found != TORCH:
        again = "pip install --no-build-isolation --force-reinstall --no-deps . in innkeeper's source"
        supported = version is not None and tuple(map(int, found.split("."))) >= OLDEST_TORCH
        raise ImportError(
            f"innkeeper was built for PyTorch {TORCH} and found {getattr(torch, '__version__', torch)}, not "
            f"compatible with it: pip install torch=={TORCH}.*"
            + (f", or build anew for this one: {again}" if supported else "")
        )
    taken_by = torch._C._get_privateuse1_backend_name()
    if taken_by not in (_UNCLAIMED, DEVICE):
        raise ImportError(
            f"innkeeper cannot be loaded beside the device {taken_by!r}: "
            "PyTorch has one slot for out-of-tree devices"
        )
    if f"torch.{DEVICE}" in sys.modules:
        return
    # torch must be loaded before the extension that links to it; importing it registers the backend.
    from innkeeper import (
        _C,  # noqa: F401
        by_name,
        checkpointed_rng,
        custom_operators,
        decompositions,
        distributed,
        inductor,
        managed_device,
        pickling,
        process_settings,
        sharded_random,
    )

    torch.utils.rename_privateuse1_backend(DEVICE)  # the Python side of the name; C++ has it already
    torch._register_device_module(DEVICE, managed_device)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    pickling.register()
    by_name.tell()
    custom_operators.tell()
    decompositions.tell()
    inductor.tell()
    checkpointed_rng.tell()
    process_settings.tell()
    distributed.register()
    sharded_random.install()
