"""CuPy: ``cupy.asarray(x)`` and the like say what gives CuPy a managed tensor's memory.

What it would need itself: to say which object it was, with the reason that its ``AttributeError`` gives,
before it goes on to NumPy's interface (``cupy/_core/core.pyx``).
"""

from __future__ import annotations

from innkeeper.integrations.cuda_arrays import refuse

AFTER = {
    "cupy": refuse("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "from_dlpack")
}
