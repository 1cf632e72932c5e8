"""The GPUs of the machine at one moment, as plain data: the argument of ``auto_choice``'s ``key``."""

from __future__ import annotations

from dataclasses import dataclass

from innkeeper import _C


@dataclass(frozen=True)
class GPU:
    """One GPU, or one MIG instance: a unit that can be leased. ``None`` means unknown, never zero.

    ``index`` is the driver's, for messages only: CUDA may count in another order.
    """

    uuid: str
    name: str
    index: int
    memory_total: int | None
    """Bytes, with those that the driver keeps for itself."""
    memory_free: int | None
    """Bytes; what leases have promised and nobody has allocated yet is in it."""
    memory_reserved: int | None
    """Bytes that the driver keeps for itself."""
    utilization: float | None
    """0 to 1."""
    power: float | None
    """Watts; of an instance: its GPU's."""
    power_limit: float | None
    """Watts."""
    temperature: int | None
    """Degrees Celsius."""

    @property
    def memory_used(self) -> int | None:
        """Bytes that processes use."""
        if self.memory_total is None or self.memory_free is None:
            return None
        return self.memory_total - (self.memory_reserved or 0) - self.memory_free


def gpus() -> list[GPU]:
    """The machine's GPUs by PCI bus id, for any ``CUDA_VISIBLE_DEVICES``; empty without a driver."""
    return [GPU(**fields) for fields in _C.gpus()]
