"""One device, ``managed``, that is all the memory a PyTorch program may use.

Importing this package registers the device. Tensors on it are placed, moved, evicted and brought back by an
engine; ``torch.managed`` is its device module, with the functions that users of ``torch.cuda`` expect::

    import torch, innkeeper

    innkeeper.configure("sim:2x64MiB,host:1GiB")  # or the environment variable INNKEEPER_NODES
    x = torch.randn(1000, 1000, device="managed")
    print(innkeeper.where(x @ x), innkeeper.summary())
"""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  (for a wheel that a user unpacked by hand)
    raise ImportError(f"innkeeper needs Python 3.10 or newer; {sys.executable} is {sys.version.split()[0]}")

from innkeeper import launch

launch.when_run_as_module()  # python -m innkeeper: this process becomes the script's

from innkeeper import _register  # noqa: E402

_register.register()

from innkeeper import integrations  # noqa: E402

integrations.prepare()

from innkeeper import mixed as _mixed  # noqa: E402
from innkeeper import tensor as _tensor  # noqa: E402
from innkeeper import torch_patches  # noqa: E402
from innkeeper._C import __version__  # noqa: E402  (the program's, too)
from innkeeper.choice import Choice, auto_choice  # noqa: E402  (after the device)
from innkeeper.data_parallel import DataParallel  # noqa: E402
from innkeeper.gpu_manager import GPUManager  # noqa: E402
from innkeeper.leases import LeaseBusy, lease  # noqa: E402
from innkeeper.manager import DeviceManager, configure, manager  # noqa: E402
from innkeeper.measured import memory_allocated, statistics  # noqa: E402
from innkeeper.module import ManagedModule  # noqa: E402
from innkeeper.nodes import Node  # noqa: E402
from innkeeper.placement import (  # noqa: E402
    evict,
    experiment,
    get_device,
    on,
    pin,
    prefetch,
    resident,
    unpin,
    where,
)
from innkeeper.recording import record  # noqa: E402
from innkeeper.report import stats, summary  # noqa: E402
from innkeeper.stats_types import NodeStats, PeriodStats, Stats  # noqa: E402
from innkeeper.tensor import ManagedTensor  # noqa: E402

_mixed.install()
_tensor.install()

cmake_prefix_path = str(Path(__file__).parent / "share" / "cmake")
"""For C++ programs: with this in ``CMAKE_PREFIX_PATH``, ``find_package(innkeeper)`` finds the package."""

__all__ = [
    "Choice",
    "DataParallel",
    "DeviceManager",
    "GPUManager",
    "LeaseBusy",
    "ManagedModule",
    "ManagedTensor",
    "Node",
    "NodeStats",
    "PeriodStats",
    "Stats",
    "__version__",
    "auto_choice",
    "cmake_prefix_path",
    "configure",
    "evict",
    "experiment",
    "get_device",
    "lease",
    "manager",
    "memory_allocated",
    "on",
    "pin",
    "prefetch",
    "record",
    "resident",
    "statistics",
    "stats",
    "summary",
    "torch_patches",
    "unpin",
    "where",
]


def __dir__() -> list[str]:
    """The public names alone: modules that the package imports are not offered for completion."""
    return sorted(__all__)


if launch.is_preloaded():  # a script that python -m innkeeper runs
    from innkeeper import cuda_compat
    from torch import nn as _nn

    cuda_compat.install()
    globals().update(DataParallel=_nn.DataParallel)
