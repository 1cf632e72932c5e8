"""The file ``manager.py`` of the manager for NVIDIA GPUs: copied to a work directory, it can be imported.

Its sample spells the class ``GPUManger`` once, so that name is there, too.
"""

from innkeeper import GPUManager

GPUManger = GPUManager

__all__ = ["GPUManager", "GPUManger"]
