"""Programs made for CUDA, run on managed devices: ``innkeeper run --managed script.py``.

``import innkeeper`` loads nothing of this package. ``python -m innkeeper script.py`` (see
``innkeeper.launch``) starts Python with ``preload`` on its path, and so does every Python that the script
starts. After PyTorch's import, ``preload`` imports innkeeper, which calls ``install`` at its end. From then
on:

- each node that computes has a device index: ``cuda:1`` is ``managed:1``, which prefers the second of them;
- PyTorch reads and writes the managed device's name as ``cuda``, in C++ and in Python;
- ``torch.cuda`` answers for the managed devices (``answers``), or raises an error of one line for a function
  without a counterpart (``refusals``).

All of this is for the whole process and is never undone.
"""

from __future__ import annotations

_installed = False


def install() -> None:
    """Installs all of it. Doing it again does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    import os

    from innkeeper import _C, device_copies, mixed
    from innkeeper.compat import tensor_managed
    from innkeeper.cuda_compat import (
        answers,
        autocast,
        compiled,
        default_type,
        groups,
        profiling,
        refusals,
        tensors,
        visible,
    )

    _C.follow_visible_devices()
    _C.use_device_per_node(visible.visible_gpus())
    _C.call_devices_cuda()
    if not os.environ.get("INNKEEPER_MIXED"):
        mixed.set_moves(False)  # CUDA's rule
    tensors.install()
    default_type.install()
    answers.install()
    autocast.install()
    compiled.install()
    refusals.install()
    groups.install()
    profiling.install()
    device_copies.install()
    tensor_managed.install()
