"""Every change that the package makes to PyTorch, and to other libraries' modules.

The device is the interface: a change to PyTorch's Python code is made only where PyTorch goes by names of
devices that no device can join, or keeps no hook. ``PATCHES`` declares each, with its reason, the versions
that need it, the test that fails without it, and the change to PyTorch that would end it. ``patch`` and
``apply`` make them, and refuse an undeclared change; ``installed()`` gives those of this process::

    >>> "torch.Tensor.__dlpack_device__" in innkeeper.torch_patches.installed()
    True

``innkeeper doctor --patches`` prints the table. A patch that is about one subject alone stands in that
subject's module; the others stand here.
"""

from __future__ import annotations

from innkeeper.torch_patches.patch import Patch, apply, installed, patch
from innkeeper.torch_patches.table import PATCHES

__all__ = ["PATCHES", "Patch", "apply", "installed", "patch"]
