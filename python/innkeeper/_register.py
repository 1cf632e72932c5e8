"""Makes the managed device known to PyTorch, once per process."""

from __future__ import annotations

import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from innkeeper._names import DEVICE

_DIRECTORY = Path(__file__).parent

try:
    from innkeeper._built_for import TORCH
except ModuleNotFoundError:
    raise ImportError(
        f"{_DIRECTORY} is innkeeper's source, which is not built there: "
        f"pip install {_DIRECTORY.parent.parent}, and import it from another directory"
    ) from None

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(
        f"innkeeper needs PyTorch {TORCH}, and {sys.executable} has none: pip install torch=={TORCH}.*"
    ) from None

OLDEST_TORCH = (2, 11)  # the same number stands in cmake/torch.cmake
_UNCLAIMED = "privateuseone"  # PyTorch's name of the slot for an out-of-tree device while no device has it


def register() -> None:
    """Loads the backend and registers ``torch.managed``. Doing it again does nothing.

    Raises:
        ImportError: innkeeper was built for another Python or series of PyTorch, or another out-of-tree
            device has taken PyTorch's one slot for such devices.

    """
    if not any((_DIRECTORY / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        built = ", ".join(sorted(file.name for file in _DIRECTORY.glob("_C*.so"))) or "no _C at all"
        raise ImportError(
            f"innkeeper was built for another Python than {sys.executable}, which loads "
            f"_C{EXTENSION_SUFFIXES[0]}: {_DIRECTORY} has {built}. pip install it with this Python"
        )
    version = re.match(r"\d+\.\d+", str(getattr(torch, "__version__", "")))
    found = version[0] if version is not None else "none"
    if found != TORCH:
        again = "pip install --no-build-isolation --force-reinstall --no-deps . in innkeeper's source"
        supported = version is not None and tuple(map(int, found.split("."))) >= OLDEST_TORCH
        raise ImportError(
            f"innkeeper was built for PyTorch {TORCH} and found {getattr(torch, '__version__', torch)}, not "
            f"compatible with it: pip install torch=={TORCH}.*"
            + (f", or build again for this one: {again}" if supported else "")
        )
    taken_by = torch._C._get_privateuse1_backend_name()
    if taken_by not in (_UNCLAIMED, DEVICE):
        raise ImportError(
            f"innkeeper cannot be loaded beside the device {taken_by!r}: "
            "PyTorch has one slot for out-of-tree devices"
        )
    if f"torch.{DEVICE}" in sys.modules:
        return
    from torch.nn.utils.rnn import PackedSequence
    from torch.storage import UntypedStorage

    # torch must be loaded before the extension that links to it; importing it registers the backend.
    from innkeeper import (
        _C,  # noqa: F401
        distributed,
        inductor,
        managed_device,
        pickling,
    )
    from innkeeper.torch_patches import (
        apply,
        checkpointed_rng,
        custom_operators,
        decompositions,
        device_names,
        higher_order,
        process_settings,
        sharded_random,
    )

    # Threads that have computed nothing yet take the count that any thread set last, and a DataLoader's that
    # pins memory sets 1: with other threads CPU kernels round otherwise. To ask for it fixes this thread's.
    torch.get_num_threads()
    # The Python side of the name; C++ has it already.
    apply("torch.utils.backend_registration.*", lambda: torch.utils.rename_privateuse1_backend(DEVICE))
    apply("torch.managed", lambda: torch._register_device_module(DEVICE, managed_device))
    # A program may have given the slot this name and generated methods; PyTorch refuses to do so twice.
    apply(
        "torch.*.is_managed",
        lambda: torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=not hasattr(torch.Tensor, f"is_{DEVICE}"),
            for_module=not hasattr(torch.nn.Module, DEVICE),
            for_packed_sequence=not hasattr(PackedSequence, f"is_{DEVICE}"),
            for_storage=not hasattr(UntypedStorage, f"is_{DEVICE}"),
        ),
    )
    pickling.register()
    device_names.install()
    custom_operators.install()
    decompositions.install()
    higher_order.install()
    inductor.install()
    checkpointed_rng.install()
    process_settings.install()
    distributed.register()
    sharded_random.install()
