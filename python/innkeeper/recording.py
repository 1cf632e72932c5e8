"""Records of a program's accesses, operator by operator, for ``innkeeper replay``."""

from __future__ import annotations

import gzip
import threading
import warnings
from pathlib import Path
from types import TracebackType

from innkeeper import _C


class record:
    """Records the operators on managed tensors inside the ``with`` block, and writes them to ``path``.

    ``innkeeper replay`` plays such a record on any GPU that the simulator knows, with less memory. It needs
    at least three steps, of which the last two are the same::

        with innkeeper.record("train.trace") as recording:
            for x, y in batches:
                ...
                recording.step()

    If a simulated GPU runs the kernels, their costs are recorded (``innkeeper.configure("sim:80GiB")``, best
    with ``data=off`` in ``INNKEEPER_SIM``: then nothing is computed). On other nodes a kernel counts for the
    bytes of its operands.

    One record is written at a time, of all threads of the process, and at most 4,194,304 lines of it. Further
    lines are counted, a warning tells their number, and ``innkeeper replay`` refuses an incomplete record.

    Args:
        path: the file, written when the block ends; compressed if its name ends in ``.gz``.

    Raises:
        OSError: at the begin of the block, if the file cannot be written.
        RuntimeError: if another record is being written; from ``step()`` outside of the block.

    """

    _active: record | None = None
    _lock = threading.Lock()

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> record:
        with record._lock:
            record._refuse_others(self)
            self.path.write_bytes(b"")  # told now, not when all is done, if that cannot be
            _C.trace_start()
            record._active = self
        return self

    @staticmethod
    def _refuse_others(recorder: object) -> None:
        """With the lock held: a process makes one record at a time."""
        if record._active is not None and record._active is not recorder:
            raise RuntimeError(f"{record._active.path} is being recorded: one record at a time")

    def step(self) -> None:
        """Marks the end of a step."""
        if record._active is not self:
            raise RuntimeError(f"{self.path} is not being recorded: step() is for the inside of the block")
        _C.trace_mark("step")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with record._lock:
            text = _C.trace_stop()
            record._active = None
        if "\nM dropped " in text[-64:]:
            warnings.warn(f"{self.path} is not whole: the program touched too much", stacklevel=2)
        written = text.encode()
        if self.path.suffix == ".gz":  # the same bytes for the same record
            written = gzip.compress(written, mtime=0)
        self.path.write_bytes(written)
