"""Choosing GPUs for this process: a lease, its GPUs as CUDA will see them, and the frameworks in use."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import torch
from innkeeper import _C, chosen, frameworks, visible
from innkeeper._names import DEVICE
from innkeeper.gpus import gpus
from innkeeper.leases import Key, Lease, LeaseBusy, lease
from innkeeper.sizes import Size, bytes_of

MARK: int = _C.MARK
"""Bytes that a choice without ``memory`` leases: no promise, only a mark that the GPU is in use."""

# Keeps a choice alive to which the program holds no reference, as long as the process.
_live: list[Choice] = []


class Choice:
    """GPUs that were chosen, and the lease on them. Made by ``auto_choice``.

    As a context manager it makes the first GPU the frameworks' current one, and ends with the context.
    """

    def __init__(self, held: Lease, memory: int | None, *, growth: bool | None = None) -> None:
        self.lease = held
        """The lease behind it."""
        self.uuids = held.uuids
        """UUIDs of the GPUs, fit for ``CUDA_VISIBLE_DEVICES``."""
        self.memory = memory
        """Bytes that were asked of each; ``None`` if no number was given."""
        self.simulated = visible.are_simulated(self.uuids)
        """Whether they are the simulated GPUs of ``INNKEEPER_NODES``, on a machine without others."""
        self.growth = growth
        """Whether frameworks take them as they need them; ``None``: each as it does by itself."""
        self._entered = ExitStack()
        self._shown = visible.show(self.uuids, held._granted)
        _live.append(self)

    @property
    def ordinals(self) -> list[int]:
        """CUDA's numbers of the GPUs in this process, as things are now.

        Raises:
            RuntimeError: CUDA was started in this process without one of them.

        """
        return visible.ordinals(self.uuids)

    @property
    def ordinal(self) -> int:
        """The first of ``ordinals``."""
        return self.ordinals[0]

    @property
    def devices(self) -> list[torch.device]:
        """The GPUs as PyTorch names them; simulated ones are the managed device, or have a number there."""
        if self.simulated and not _C.has_device_per_node():
            return [torch.device(DEVICE, 0) for _ in self.ordinals]
        return [torch.device(DEVICE if self.simulated else "cuda", ordinal) for ordinal in self.ordinals]

    @property
    def device(self) -> torch.device:
        """The first of ``devices``."""
        return self.devices[0]

    def release(self) -> None:
        """Gives the GPUs back, even if a framework fails at it. Again: does nothing."""
        if self not in _live:
            return
        _live.remove(self)
        with ExitStack() as ending:  # the last first, each even if another raises
            ending.callback(self.lease.release)
            ending.callback(visible.hide, self._shown)
            ending.callback(frameworks.forget, self)
            ending.callback(self._entered.close)

    def __enter__(self) -> Choice:
        try:
            frameworks.enter(self, self._entered)
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"Choice({', '.join(self.uuids)}{'' if self.lease.held else ', not held'})"


class CPUChoice(Choice):
    """The CPU, where ``auto_choice(fallback="cpu")`` found no GPU: no lease, and nothing to release."""

    def __init__(self) -> None:
        self.lease = None  # type: ignore[assignment]
        self.uuids = []
        self.memory = self.growth = None
        self.simulated = False
        self._entered = ExitStack()

    @property
    def devices(self) -> list[torch.device]:
        """The CPU."""
        return [torch.device("cpu")]

    def release(self) -> None:
        """Leaves the frameworks' contexts."""
        self._entered.close()

    def __repr__(self) -> str:
        return "Choice(cpu)"


def auto_choice(
    mode: int | str = 0,
    key: Key | None = None,
    n: int = 1,
    memory: Size | None = None,
    *,
    exclusive: bool = False,
    wait: bool | float = False,
    growth: bool | None = None,
    uuids: Sequence[str] | None = None,
    fallback: str | None = None,
) -> Choice:
    """Chooses ``n`` GPUs, for the context or for the rest of the process, and leases them.

    GPUs without another choice or lease come first. With ``memory`` this process alone is promised that many
    bytes of each GPU, from now until the choice ends. Without it, other programs only see that the GPU is in
    use.

    Before CUDA is started in this process, ``CUDA_VISIBLE_DEVICES`` is set to the chosen GPUs, until the
    choice ends. After that use ``choice.device``, whose ordinal is CUDA's. Frameworks that the program has
    imported follow the choice: their memory is limited to ``memory``, and inside ``with`` the first GPU is
    the current one of PyTorch, TensorFlow and JAX. The choice imports none of them. It prints the chosen
    GPUs, the reason and the figures of the other GPUs on standard error, unless ``INNKEEPER_LOG`` is ``warn``
    or ``error``::

        with innkeeper.auto_choice(memory=8 << 30) as gpu:
            model.to(gpu.device)

    Args:
        mode: ``0`` or ``"free"`` (most free memory), ``1`` or ``"ratio"`` (largest free part), ``2`` or
            ``"power"`` (least, of its limit), ``3`` or ``"utilization"`` (least).
        key: instead of ``mode``: called with each :class:`innkeeper.gpus.GPU`; highest wins.
        n: number of GPUs; all or none.
        memory: bytes of each, or ``"8GiB"``. A CUDA context takes some hundred MiB of them.
        exclusive: no other program may use the GPUs.
        wait: seconds to wait in line, or for ever if ``True``.
        growth: whether PyTorch and JAX take ``memory`` as they need it, or all at once when they start, so
            that not even a process without a lease gets it. ``None``: the frameworks' own behaviour: PyTorch
            as needed, JAX at once. TensorFlow takes a limited memory at once.
        uuids: choose only among these.
        fallback: ``"cpu"``: if no GPU can be seen or may be used, choose the CPU and say so.

    Raises:
        LeaseBusy: not available now; with ``wait``, not in time. The message contains the figures.
        ValueError: it can never be granted, or makes no sense, as ``growth=False`` without ``memory``.
        RuntimeError: no GPU can be seen or may be used.

    """
    if growth is False and memory is None:
        raise ValueError("growth=False takes memory at once: say how much, as in auto_choice(memory=8 << 30)")
    if fallback not in (None, "cpu"):
        raise ValueError(f'fallback is "cpu" or None, got {fallback!r}')
    memory = None if memory is None else bytes_of(memory, "memory")
    asked = memory if memory is not None or exclusive else MARK
    by = "free" if key else mode
    among = _started_with(uuids)
    try:
        held = lease(
            n, asked, exclusive=exclusive, mode=by, key=key, wait=wait, uuids=among, vendor=_vendor()
        )
    except (LeaseBusy, ValueError) as error:
        if among is uuids:
            raise
        nodes = ", ".join(node.name for node in _C.nodes() if node.kind == "sim")
        raise type(error)(f"{error}. The managed device was started with {nodes} alone") from None
    except RuntimeError as error:
        if fallback is None:
            raise
        chosen.tell_of_none(error)
        return CPUChoice()
    choice = Choice(held, memory, growth=growth)
    chosen.tell(choice.uuids, mode, key)
    try:
        frameworks.prepare(choice)
    except BaseException:
        choice.release()
        raise
    return choice


def _started_with(uuids: Sequence[str] | None) -> Sequence[str] | None:
    """The managed device's GPUs of these, if it has started with simulated GPUs, the only ones here."""
    simulated = [node.name for node in _C.nodes() if node.kind == "sim"] if _C.started() else []
    if not simulated:
        return uuids
    here = [gpu.uuid for gpu in gpus() if uuids is None or gpu.uuid in uuids]
    if not visible.are_simulated(here):
        return uuids
    return [uuid for uuid in here if _C.simulated_node(uuid) in simulated]


def _vendor() -> str:
    """The vendor of the GPUs for which PyTorch was built; empty for a build without GPUs.

    Raises:
        RuntimeError: HIP is started. It does not tell the GPU of an ordinal, and reads no variable any more.

    """
    if not torch.version.hip:
        return "nvidia" if torch.version.cuda else ""
    if torch.cuda.is_initialized():
        raise RuntimeError("HIP has been started in this process: choose AMD GPUs before that")
    return "amd"


@atexit.register
def _release_all() -> None:
    for choice in list(_live):
        choice.lease.release()


# A child of fork() does not have its parent's choices. There leaving `with`, or ending, must not lead to the
# frameworks, which the child may not use.
os.register_at_fork(after_in_child=_live.clear)
