"""A process that has imported PyTorch, and forks a child for each script that it is given.

The import takes most of a short script's time. CUDA has not begun, and Innkeeper is not loaded, before the
fork. A script is a line of JSON on stdin, answered by its exit status, negative for a signal:
{"script": text, "environment": {name: value}, "output": path, "errors": path}
"""

from __future__ import annotations

import json
import os
import signal
import sys

import torch  # noqa: F401

TIMEOUT = 120  # seconds


def become(order: dict) -> str:
    """Makes this process like one that was started for the script."""
    signal.alarm(TIMEOUT)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["-c"]
    nothing = os.open(os.devnull, os.O_RDONLY)
    files = [os.open(order[name], os.O_WRONLY | os.O_TRUNC | os.O_CREAT) for name in ("output", "errors")]
    for target, file in enumerate([nothing, *files]):
        os.dup2(file, target)
        os.close(file)
    return order["script"]


def wait_for_orders() -> str | None:
    """Reads the scripts and forks. Returns a script in the forked child; None at the end."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            return become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


if __name__ == "__main__":
    script = wait_for_orders()
    if script is not None:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
