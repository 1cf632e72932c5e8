"""Numba: ``numba.cuda.as_cuda_array(x)`` and ``to_device`` say what gives Numba a managed tensor's memory.

What it would need itself: the reason that the object's ``AttributeError`` gives, in the error of
``as_cuda_array`` (``numba/cuda/api.py``).
"""

from __future__ import annotations

from innkeeper.integrations.cuda_arrays import refuse

AFTER = {"numba.cuda.api": refuse("as_cuda_array", "to_device")}
