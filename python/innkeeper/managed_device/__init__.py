"""``torch.managed``: the device module of ``managed``, with ``torch.cuda``'s public names (see ``table``).

There is one device, index 0, for all nodes, unless ``innkeeper.configure(devices="each")`` gave each an
index. Where tensors are is the engine's business; to place by hand use ``innkeeper.on(node)``.
"""

from __future__ import annotations

from typing import Any

from innkeeper.managed_device import amp, device, memory, random, streams, table, types
from innkeeper.managed_device.refused import Refused

has_half = True
has_magma = False  # solvers are the computing device's


def _collect() -> dict[str, Any]:
    """All public names, from the modules that have them and from the table."""
    names: dict[str, Any] = {"amp": amp, "memory": memory, "random": random, "streams": streams}
    for module in (device, memory, random, streams, types):
        names |= {name: getattr(module, name) for name in module.__all__}
    return names | {name: Refused(name, reason) for name, reason in table.REFUSED.items()}


_is_in_bad_fork = device._is_in_bad_fork
_lazy_init = device._lazy_init
is_initialized = device.is_initialized
_names = _collect()
globals().update(_names)

__all__ = [*_names, "has_half", "has_magma"]


def __getattr__(name: str) -> Any:
    if name == "_initialized":  # torch.utils.checkpoint asks before it saves random states
        return is_initialized()
    reason = table.NOT_APPLICABLE.get(name)
    explanation = f"not applicable, {reason}" if reason else "torch.cuda has no such public name either"
    raise AttributeError(f"torch.managed has no {name}: {explanation}")
