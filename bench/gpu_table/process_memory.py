"""The GPU memory of a process by NVML: allocator, context, libraries, all."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from gpu_table.results import output_of

INTERVAL_S = 0.05
SMI_INTERVAL_S = 1.0
SMI = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")


class PeakOf:
    """Samples a process's bytes on the GPU while the context lasts. ``bytes`` is None if unknown."""

    def __init__(self, pid: int) -> None:
        self.bytes: int | None = None
        self._pid = pid
        self._ended = threading.Event()
        self._nvml = nvml()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakOf:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        interval = INTERVAL_S if self._nvml is not None else SMI_INTERVAL_S
        while not self._ended.wait(interval):
            used = used_by(self._nvml, self._pid)
            if used is None and self.bytes is None and self._nvml is None and not output_of(*SMI[:1]):
                return  # There is no nvidia-smi.
            self.bytes = max(filter(None, (self.bytes, used)), default=None)


def nvml() -> Any:
    """NVML's module, started; None where it or a driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml


def used_by(module: Any, pid: int) -> int | None:
    """Bytes of a process on all GPUs, by NVML or by nvidia-smi."""
    if module is None:
        return from_smi(output_of(*SMI), pid)
    used = 0
    for index in range(module.nvmlDeviceGetCount()):
        handle = module.nvmlDeviceGetHandleByIndex(index)
        processes = module.nvmlDeviceGetComputeRunningProcesses(handle)
        used += sum(process.usedGpuMemory or 0 for process in processes if process.pid == pid)
    return used or None


def from_smi(text: str, pid: int) -> int | None:
    """The same from nvidia-smi's lines, ``pid, MiB``."""
    rows = [line.split(",") for line in text.splitlines() if line.count(",") == 1]
    found = [int(mib) << 20 for number, mib in rows if number.strip() == str(pid) and mib.strip().isdigit()]
    return sum(found) or None
