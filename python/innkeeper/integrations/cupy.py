"""CuPy: ``cupy.asarray(x)`` and similar calls name the call that gives CuPy a managed tensor's memory.

To do so itself, CuPy would need to name the object, with the reason in its ``AttributeError``, before it
falls back to NumPy's interface (``cupy/_core/core.pyx``).
"""

from __future__ import annotations

from innkeeper.integrations.cuda_arrays import refuse

AFTER = {
    "cupy": refuse("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "from_dlpack")
}
