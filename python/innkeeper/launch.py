"""``python -m innkeeper``: becomes the Python that runs a script made for CUDA, on the managed device.

The process is replaced by ``python script.py ...``, with a directory on ``PYTHONPATH`` whose
``sitecustomize`` loads ``innkeeper.cuda_compat`` when PyTorch is imported. So tracebacks, ``sys.argv``,
``__main__``, exit codes and signals are Python's own, and every Python that the script starts does the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

_PRELOAD = Path(__file__).parent / "cuda_compat" / "preload"

USAGE = """\
usage: python -m innkeeper [OPTIONS] (SCRIPT | -m MODULE | -c CODE | -) [ARGUMENTS]

Runs a script made for CUDA on the managed device: what it calls cuda is managed, cuda:1 is the second
node that computes. The options are Python's own. INNKEEPER_NODES says which nodes there are, as in
sim:2x8GiB,host:32GiB
"""


def when_run_as_module() -> None:
    """To be called first by the package: ``python -m innkeeper`` need not import PyTorch twice.

    While Python looks for the module that -m names, ``sys.argv[0]`` is ``"-m"``.
    """
    if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] in ("innkeeper", "-minnkeeper"):
        become(sys.argv[1:])


def is_preloaded() -> bool:
    """Whether this process was started so, or by one that was."""
    return str(_PRELOAD) in sys.path


def become(words: list[str]) -> NoReturn:
    """Runs Python with these words, in this process. Prints the usage if they ask for it."""
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        sys.exit(0)
    options = _own_options()
    if sys.flags.ignore_environment or sys.flags.no_site or _keeps_out(words):
        sys.exit("python -m innkeeper: Python's options -E, -I and -S keep it from loading anything first")
    path = os.environ.get("PYTHONPATH")
    directories = [
        directory for directory in (path or "").split(os.pathsep) if directory and directory != str(_PRELOAD)
    ]
    # This run's process, not that of an outer run; see preload.
    os.environ["INNKEEPER_FIRST"] = str(os.getpid())
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_PRELOAD), *directories])
    os.execv(sys.executable, [sys.executable, *options, *words])


def _own_options() -> list[str]:
    """The options of Python that stood before ``-m innkeeper``."""
    options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    last = options.pop()  # innkeeper after -m or after options that end in m; or -minnkeeper
    if last == "innkeeper":
        last = options.pop()
    last = last.removesuffix("innkeeper").removesuffix("m")
    return options if last == "-" else [*options, last]


def _keeps_out(words: list[str]) -> bool:
    """Whether an option among the words has Python ignore PYTHONPATH or the site module."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            return False
        for at, letter in enumerate(word[1:], 1):
            if letter in "EIS":
                return True
            if letter in "cm":
                return False
            if letter in "WX":  # options with a value, in this word or the next
                if at == len(word) - 1:
                    next(rest, None)
                break
    return False
