"""What scripts written for CUDA say, answered by the managed device: ``innkeeper run --managed script.py``.

Nothing here is loaded by ``import innkeeper``. ``python -m innkeeper script.py`` (see ``innkeeper.launch``)
starts Python with ``preload`` on its path, and so does every Python that the script starts. There PyTorch's
import is followed by innkeeper's, which calls ``install`` at its end. From then on, in Python:

- ``cuda`` names the managed device wherever PyTorch takes a device, and that is how it shows itself;
- ``cuda:1`` is the second node that computes: what is made or sent there has its home there (``homes``);
- ``torch.cuda`` answers for the managed device (``answers``), or says in one line what it cannot do
  (``refusals``).

All of this is for the whole process and is never undone.
"""

from __future__ import annotations

_installed = False


def install() -> None:
    """Makes it so. Doing it again does nothing."""
    global _installed
    if _installed:
        return
    _installed = True
    import torch
    from innkeeper import _C
    from innkeeper.cuda_names import answers, autocast, compiled, groups, refusals, tensors

    _C.show_devices_as("cuda", torch.Generator, torch.Stream, torch.Event)
    _C.follow_visible_devices()
    tensors.install()
    answers.install()
    autocast.install()
    compiled.install()
    refusals.install()
    groups.install()
