"""Runs a command whose child processes end with it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def process_group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Starts a command in its own session; an exception in the block kills every process of that session.

    Ctrl-C therefore reaches the command only through the caller's KeyboardInterrupt. `options` are those of
    `subprocess.Popen`.
    """
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, start_new_session=True, **options)
    try:
        yield process
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
