"""GPUManager: methods of one's own, columns of nvidia-smi, its file in the work directory, and errors."""

from __future__ import annotations

import shutil

from fake_machine import A, C, FakeMachine
from repository import ROOT


def test_what_a_method_of_one_s_own_leaves_out_is_never_given(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import GPUManager, LeaseBusy
class Mine(GPUManager):
    def _sort_by_busy(self, gpus):
        return [gpu for gpu in gpus if gpu["utilization.gpu"] > 10]
    def _sort_by_nothing(self, gpus):
        return []
    def _sort_by_mistake(self, gpus):
        gpus.sort(key=lambda gpu: gpu["uuid"])
    def _sort_by_index(self, gpus):
        return [0, 1]
    def _sort_by_memory_and_name(self, gpus):
        return self._sort_by_custom(self._sort_by_memory(gpus, by_size=True), key="uuid", reverse=True)
gm = Mine()
kept = [gm.auto_choice("busy") for _ in range(3)]
print([choice.uuids[0] for choice in kept] == [A, B, A])
for wanted in (lambda: gm.auto_choice("busy", n=3), lambda: gm.auto_choice("nothing"),
               lambda: gm.auto_choice("mistake"), lambda: gm.auto_choice("index")):
    try:
        wanted()
    except (ValueError, LeaseBusy) as error:
        print(type(error).__name__, error)
for choice in kept:
    choice.release()
print(gm.auto_choice("memory_and_name").uuids == [C], gm.auto_choice("memory").uuids == [B])
rows = gm.gpus
print([row["uuid"][4] for row in gm._sort_by_power(rows)], gm._sort_by_custom(rows, lambda gpu: 0) == rows)
with gm.auto_choice(memory=4 << 30, growth=False) as taken:
    print(taken.growth)
try:
    gm._sort_by_custom(gm.gpus, "fan.speed")
except ValueError as error:
    print(error)
"""
    )
    assert said[0] == "True"
    assert said[1].startswith("ValueError") and "3" in said[1]
    assert said[2:5] == [
        "ValueError _sort_by_nothing returned no GPU: it returns those that may be given, best first",
        "ValueError _sort_by_mistake returned None: it returns the GPUs that may be given, best first",
        "ValueError _sort_by_index returned 0, which is no row of gpus",
    ]
    assert said[5:] == [
        *("True True", "['a', 'b', 'c'] True", "False"),
        "there is no column 'fan.speed': pass it in GPUManager(qargs=['fan.speed'])",
    ]


def test_columns_of_nvidia_smi(machine: FakeMachine):
    """Unknown columns are nvidia-smi's, which is a script here."""
    directory = machine.directory / "bin"
    directory.mkdir()
    program = directory / "nvidia-smi"
    program.write_text(
        f"""#!/bin/sh
case "$1" in
  *nonsense*) echo 'Field "nonsense" is not a valid field to query.'; exit 2;;
  --query-gpu=uuid,fan.speed,pstate) printf '{C}, 31, P0\\n{A}, [N/A], P8\\n';;
  *) echo "asked $*" >&2; exit 9;;
esac
"""
    )
    program.chmod(0o755)
    code = """
from innkeeper import GPUManager
gm = GPUManager(["fan.speed", "name", "pstate", "memory.free"])
print([(gpu["fan.speed"], gpu["pstate"], gpu["name"]) for gpu in gm.gpus], len(gm.gpus[0]))
print(gm._sort_by_custom(gm.gpus, "fan.speed")[0]["uuid"] == C)
for wrong in (["nonsense"], "fan.speed", [3], [""]):
    try:
        GPUManager(qargs=wrong).gpus
    except (TypeError, ValueError) as error:
        print(error)
os.environ["PATH"] = "/nowhere"
print(GPUManager(["memory.reserved"]).gpus[0]["memory.reserved"])
try:
    gm.gpus
except ValueError as error:
    print(error)
"""
    said = machine.run(code, PATH=f"{directory}:/usr/bin:/bin")
    assert said[0] == "[(None, 'P8', 'Fake'), (None, None, 'Fake'), (31, 'P0', 'Fake')] 13"
    assert said[1] == "True"
    assert said[2].endswith('--query-gpu=uuid,nonsense: Field "nonsense" is not a valid field to query.')
    assert [line.split(",")[0] for line in said[3:6]] == [
        "qargs is a list of columns such as ['fan.speed']"
    ] * 3
    assert said[6] == "0"
    assert said[7].startswith("the columns fan.speed, pstate are nvidia-smi's, which does not answer")


def test_the_file_manager_can_be_copied_to_the_work_directory(machine: FakeMachine):
    shutil.copy(ROOT / "python" / "innkeeper" / "compat" / "manager.py", machine.directory)
    code = """
sys.path.insert(0, os.environ["DIRECTORY"])
import manager
gm = manager.GPUManger()
with gm.auto_choice():
    print(type(gm) is innkeeper.GPUManager is manager.GPUManager, manager.__file__.startswith(sys.path[0]))
"""
    assert machine.run(code, DIRECTORY=str(machine.directory)) == ["True True"]


def test_errors_name_what_was_given(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import GPUManager, LeaseBusy, auto_choice
class Mine(GPUManager):
    def _sort_by_best(self, gpus):
        return gpus[0]
held = innkeeper.lease(uuids=[B])
for wanted in (lambda: auto_choice(mode=9), lambda: auto_choice(n="2"),
               lambda: auto_choice(uuids=["GPU-zzz"]),
               lambda: auto_choice(key=lambda gpu: None), lambda: Mine().auto_choice("best"),
               lambda: auto_choice(uuids=[B])):
    try:
        wanted()
    except (TypeError, ValueError, LeaseBusy) as error:
        print(type(error).__name__, str(error).replace(A, "A").replace(B, "B").replace(C, "C"))
"""
    )
    assert said[:5] == [
        'ValueError mode 9 is none of 0 or "free", 1 or "ratio", 2 or "power", 3 or "utilization"',
        "TypeError n is an int, how many GPUs; got '2'",
        "ValueError no GPU here is 'GPU-zzz'; there are A, B, C",
        "TypeError the key of A is None: expected a number",
        "ValueError _sort_by_best returned one row: it returns a list of those that may be given, best first",
    ]
    assert said[5].startswith("LeaseBusy") and said[5].endswith("wait=True waits in line")
