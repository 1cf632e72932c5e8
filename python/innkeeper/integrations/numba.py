"""Numba: ``numba.cuda.as_cuda_array(x)`` and ``to_device`` name the call that gives Numba x's memory.

To do so itself, Numba would need the reason in the object's ``AttributeError`` in its own error of
``as_cuda_array`` (``numba/cuda/api.py``).
"""

from __future__ import annotations

from innkeeper.integrations.cuda_arrays import refuse

AFTER = {"numba.cuda.api": refuse("as_cuda_array", "to_device")}
