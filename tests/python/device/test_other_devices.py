"""After ``import innkeeper`` other devices are as before: programs on the CPU say the same as without it.

Those that PyTorch answers by asking which accelerator there is: ours is one now. More of them, and PyTorch's
own databases, by hand: tests/compat/other_devices.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from processes import RunProgram

PROGRAMS = (
    "data_parallel",
    "checkpointed",
    "loader",
    "autocast",
    "generators",
    "pinned",
    "transformed",
    "attention",
)
IN_TWO_PROCESSES = ("meshed", "collectives")


def test_programs_on_the_cpu_say_the_same(run_python: RunProgram):
    def said(*options: str) -> list[str]:
        done = run_python("tests/pytorch_own/programs.py", *PROGRAMS, *IN_TWO_PROCESSES, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with ThreadPoolExecutor() as pool:
        without, loaded = pool.map(lambda options: said(*options), [(), ("--with-innkeeper",)])
    assert [line.partition(":")[0] for line in without] == [*PROGRAMS, *IN_TWO_PROCESSES]
    assert not [line for line in without if "Error" in line]
    assert loaded == without
