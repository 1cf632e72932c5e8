"""Leases: this process's claims on bytes of GPUs, or on whole ones, that every process of the machine sees.

A lease needs no daemon and no root. It ends with its holder, however that happens: the kernel sees to it. How
that is done stands in ``docs/design/leases.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import TracebackType

from innkeeper import _C
from innkeeper.gpus import GPU, gpus
from innkeeper.renamed import arguments_renamed
from innkeeper.sizes import Size, bytes_of

LeaseBusy = _C.LeaseBusy
"""Not now: the message says what is left, who holds the rest, and who waits. Trying later may work."""

MODES = {0: "free", 1: "ratio", 2: "power", 3: "utilization"}
Key = Callable[[GPU], float]


def mode_name(mode: int | str) -> str:
    """The name of a mode that is given by its name or its number.

    Raises:
        ValueError: there is no such mode.

    """
    if mode in MODES:
        return MODES[int(mode)]
    if mode in MODES.values():
        return str(mode)
    known = ", ".join(f'{number} or "{name}"' for number, name in MODES.items())
    raise ValueError(f"mode {mode!r} is none of {known}")


class Lease:
    """A claim on ``memory`` bytes of each of some GPUs, or on all of them. Made by ``lease``.

    As a context manager it ends with the context. After ``fork()`` the child does not have it.
    """

    def __init__(self, granted: _C.Lease) -> None:
        self._granted = granted

    @property
    def id(self) -> str:
        """16 hexadecimal digits: the value of ``INNKEEPER_LEASE`` for a job that may lease parts of it."""
        return self._granted.id

    @property
    def uuids(self) -> list[str]:
        """The UUIDs of its GPUs or MIG instances, sorted."""
        return [uuid for uuid, _ in self._granted.claims]

    @property
    def claims(self) -> dict[str, int]:
        """UUID to bytes."""
        return dict(self._granted.claims)

    @property
    def exclusive(self) -> bool:
        """It has its GPUs whole."""
        return self._granted.exclusive

    @property
    def held(self) -> bool:
        """True while this process has it: not after ``release``, not in a child of ``fork()``."""
        return self._granted.held

    def intact(self) -> bool:
        """Others see it: it is held, has not expired, and no administrator has removed it."""
        return self._granted.intact()

    def release(self) -> None:
        """Gives it back. Again: does nothing."""
        self._granted.release()

    def resize(self, memory: Size) -> None:
        """Changes how many bytes of each of its GPUs it has; ``"8GiB"`` is a number of bytes, too.

        Raises:
            LeaseBusy: there is not so much left, or parts of it are leased on; it stays as it was.
            ValueError: it has its GPUs whole.

        """
        self._granted.resize(bytes_of(memory, "memory"))

    def renew(self, seconds: float) -> None:
        """Lets it expire that many seconds from now.

        Raises:
            RuntimeError: it is over.

        """
        self._granted.renew(seconds)

    def share_with_children(self) -> None:
        """Children of ``fork()`` keep it from now on; it then lasts until the last of them is gone."""
        self._granted.share_with_children()

    def share_through_exec(self) -> int:
        """Programs that this process executes keep it, too; returns the descriptor, for ``adopt`` there."""
        return self._granted.share_through_exec()

    def leave(self) -> None:
        """Leaves the lease without ending it for the processes that share it."""
        self._granted.leave()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        held = "" if self.held else ", not held"
        return f"Lease({self.id}, {self.claims}{', exclusive' if self.exclusive else ''}{held})"


@arguments_renamed(maker="vendor")
def lease(
    n: int = 1,
    memory: Size | None = None,
    *,
    exclusive: bool | None = None,
    mode: int | str = "free",
    key: Key | None = None,
    wait: bool | float = False,
    expires: float | None = None,
    job: str = "",
    uuids: Sequence[str] | None = None,
    vendor: str = "",
) -> Lease:
    """Leases GPUs, all ``n`` or none, from the GPUs that this process may use.

    GPUs without a holder come first, then those with the best links between them, then the best by ``mode``
    or ``key``. It changes no framework and no environment variable: ``auto_choice`` does.

    Args:
        n: number of GPUs.
        memory: bytes of each, or ``"8GiB"``; without it GPUs are taken whole.
        exclusive: whether to have the GPUs whole. Default: unless ``memory`` is given.
        mode: ``"free"`` (most free memory) or 0, ``"ratio"`` (largest free part) or 1, ``"power"`` (least, of
            its limit) or 2, ``"utilization"`` (least) or 3.
        key: instead of ``mode``: called once with each :class:`innkeeper.gpus.GPU`; highest wins.
        wait: seconds to wait in line, or for ever if ``True``.
        expires: seconds after which the lease ends by itself.
        job: a text that others see.
        uuids: choose only among these.
        vendor: ``"nvidia"`` or ``"amd"``. Several GPUs are always of one vendor.

    Raises:
        LeaseBusy: not available now; with ``wait``, not in time.
        ValueError: it can never be granted, or makes no sense.
        RuntimeError: no GPU can be seen or may be used.
        OSError: the directory of leases cannot be used.

    """
    if memory is not None:
        memory = bytes_of(memory, "memory")
    by = mode_name(mode)
    if not isinstance(n, int) or isinstance(n, bool):
        raise TypeError(f"n is an int, how many GPUs; got {n!r}")
    limit = float(wait) if not isinstance(wait, bool) else None
    try:
        granted = _C.acquire_lease(
            count=n,
            memory=memory,
            exclusive=exclusive,
            by=by,
            keys=None if key is None else _keys(key),
            wait=wait is not False,
            wait_limit=limit,
            allowed=None if uuids is None else _known(uuids),
            vendor=vendor,
            expires=expires,
            job=job,
        )
    except LeaseBusy as error:
        raise LeaseBusy(str(error).replace("--wait waits in line", "wait=True waits in line")) from None
    return Lease(granted)


def _known(uuids: Sequence[str]) -> list[str]:
    here = [gpu.uuid for gpu in gpus()]
    strange = [uuid for uuid in uuids if uuid not in here]
    if strange and here:
        raise ValueError(f"no GPU here is {', '.join(map(repr, strange))}; there are {', '.join(here)}")
    return list(uuids)


def _keys(key: Key) -> dict[str, float]:
    keys = {}
    for gpu in gpus():
        value = key(gpu)
        try:
            keys[gpu.uuid] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"the key of {gpu.uuid} is {value!r}: expected a number") from None
    for uuid, value in keys.items():
        if math.isnan(value):  # NaN cannot be ordered
            raise ValueError(f"the key of {uuid} is NaN: expected a number")
    return keys


def adopt(descriptor: int | None = None) -> Lease:
    """The lease that this process was started with, by its descriptor (default: ``INNKEEPER_LEASE_FD``).

    Raises:
        ValueError: the descriptor is no lease, or there is none.

    """
    return Lease(_C.adopt_lease(descriptor))
