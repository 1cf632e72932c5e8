"""The file ``manager.py`` of the manager for NVIDIA cards: copied to a work folder, it can be imported.

Its sample spells the class ``GPUManger`` once, so that name is there, too.
"""

from innkeeper import GPUManager

GPUManger = GPUManager

__all__ = ["GPUManager", "GPUManger"]
