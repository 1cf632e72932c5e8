"""auto_choice, lease and GPUManager on a machine of fake GPUs, each program in a process of its own."""

from __future__ import annotations

import signal
import sys
import time

from documents import fences
from fake_machine import A, B, C, FakeMachine
from processes import StartProgram
from repository import ROOT


def test_modes_and_keys(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import GPUManager, auto_choice

class Mine(GPUManager):
    def _sort_by_name_backwards(self, gpus):
        return sorted(gpus, key=lambda gpu: gpu["uuid"], reverse=True)
    def _sort_by_power(self, gpus):  # in place of ours
        return sorted(gpus, key=lambda gpu: -gpu["power.draw"])

def show(choice):
    with choice:
        print(choice.uuids[0])

for manager in (GPUManager(), innkeeper):
    for mode in (0, "free", 1, "ratio", 2, "power", 3, "utilization"):
        show(manager.auto_choice(mode))
    show(manager.auto_choice(key=lambda gpu: -gpu.memory_total))
for mode in ("name_backwards", "power"):
    show(Mine().auto_choice(mode=mode))
row = GPUManager().gpus[0]
columns = ("memory.total", "memory.free", "utilization.gpu", "power.draw")
print(GPUManager().gpu_num, *(row[column] for column in columns))
for wrong in (7, "luck"):
    try:
        GPUManager().auto_choice(wrong)
    except ValueError as error:
        print("ValueError", wrong in (7, "luck") and str(wrong) in str(error))
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.listdir(os.environ["INNKEEPER_LEASE_DIR"]))
"""
    )
    modes = [A, A, B, B, A, A, C, C, B]
    assert said[:18] == modes * 2
    assert said[18:20] == [C, C]
    assert said[20] == "3 81920 40960 50 100.0"
    assert said[21:] == ["ValueError True"] * 2 + ["None ['alloc.lock']"]


def test_what_was_chosen_is_told_once_by_a_table(machine: FakeMachine):
    code = """
from innkeeper import GPUManager, auto_choice
kept = [auto_choice(1), GPUManager().auto_choice(), auto_choice(key=lambda gpu: gpu.index)]
"""
    told = machine.fail_free(code).stderr.splitlines()
    assert told == [
        "innkeeper: chose GPU 1 (GPU-bbbbbbbb) of 3: largest free part of the memory",
        "   GPU  NAME         FREE / TOTAL  UTIL  POWER  LEASES",
        "   0    Fake  40.0 GiB / 80.0 GiB   50%  100 W       0",
        "*  1    Fake  24.0 GiB / 24.0 GiB   90%  200 W       1",
        "   2    Fake  31.0 GiB / 32.0 GiB    0%  300 W       0",
        "innkeeper: chose GPU 0 (GPU-aaaaaaaa) of 3: most free memory",
        "innkeeper: chose GPU 2 (GPU-cccccccc) of 3: highest key",
    ]
    for level in ("warn", "warning", "error"):
        assert machine.fail_free(code, INNKEEPER_LOG=level).stderr == ""
    in_container = "from innkeeper import _C\n_C.lease_warnings = lambda: ['nobody outside', 'a logout']\n"
    alone = machine.fail_free(in_container + code).stderr.splitlines()
    assert alone == [*told[:5], "innkeeper: nobody outside", "innkeeper: a logout", *told[5:]]


def test_the_cpu_stands_in_where_there_is_no_gpu(machine: FakeMachine):
    code = """
import innkeeper, sys, types
from innkeeper import GPUManager, LeaseBusy, auto_choice
for choose in (auto_choice, GPUManager().auto_choice):
    with choose(fallback="cpu") as choice:
        print(choice.device, choice.uuids, choice.ordinals, choice.memory, choice)
    choice.release()
for wrong in (lambda: auto_choice(), lambda: auto_choice(fallback="tpu")):
    try:
        wrong()
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__)
"""
    for hidden in (
        {"CUDA_VISIBLE_DEVICES": ""},
        {"INNKEEPER_NVML": "/nowhere", "INNKEEPER_AMDSMI": "/nowhere"},
    ):
        done = machine.fail_free(code, **hidden)
        assert done.stdout.splitlines() == [
            *["cpu [] [] None Choice(cpu)"] * 2,
            *("RuntimeError", "ValueError"),
        ]
        told = done.stderr.splitlines()
        assert len(told) == 2 and all(line.startswith("innkeeper: chose the CPU: ") for line in told)
    busy = machine.fail_free(
        """
import innkeeper
uuid = innkeeper.GPUManager().gpus[1]["uuid"]
held = innkeeper.lease(uuids=[uuid])
try:
    innkeeper.auto_choice(fallback="cpu", uuids=[uuid])
except innkeeper.LeaseBusy:
    print("busy")
"""
    )
    assert busy.stdout == "busy\n"


def test_a_key_that_is_no_number_is_refused(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import GPUManager, auto_choice, lease
for choose in (auto_choice, GPUManager().auto_choice, lease):
    try:
        choose(key=lambda gpu: float("nan") if gpu.uuid == B else 1.0)
    except ValueError as error:
        print(str(error).replace(B, "B"))
print(auto_choice(key=lambda gpu: float("inf") if gpu.uuid == B else 1.0).uuids == [B])
"""
    )
    assert said == ["the key of B is NaN: expected a number"] * 3 + ["True"]


def test_gpus_without_a_lease_come_first_and_promises_hold(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import auto_choice, lease, LeaseBusy
names = {A: "A", B: "B", C: "C"}
kept = [auto_choice() for _ in range(4)]  # the fourth shares
print(*(names[choice.uuids[0]] for choice in kept))
print(*(choice.lease.claims[choice.uuids[0]] for choice in kept))
for choice in kept:
    choice.release()
    choice.release()
with lease(memory=30 << 30) as most:
    print(names[most.uuids[0]], most.claims[most.uuids[0]] == 30 << 30, most.exclusive)
    with auto_choice(memory=20 << 30, n=2) as two:
        print(sorted(names[uuid] for uuid in two.uuids))
    try:
        auto_choice(memory=25 << 30, n=2)
    except LeaseBusy as error:
        print("busy", "30.0 GiB" in str(error), "25.0 GiB" in str(error))
    most.resize(1 << 30)
    auto_choice(memory=25 << 30, n=2).release()
    most.renew(0.001)
    import time; time.sleep(0.05)
    print(most.held, most.intact())
print(most.held)
with auto_choice(exclusive=True) as alone:  # B or C: somebody uses A without a lease
    print(names[alone.uuids[0]], alone.lease.exclusive)
try:
    auto_choice(memory=81 << 30)
except ValueError as error:
    print("never", "81.0 GiB" in str(error))
"""
    )
    assert said == [
        "A C B A",
        "1048576 1048576 1048576 1048576",
        "A True False",
        "['B', 'C']",
        "busy True True",
        "True False",
        "False",
        "B True",
        "never True",
    ]


def test_the_variable_before_cuda_is_started(machine: FakeMachine):
    """The choice is within the given devices, never wider; CUDA then sees the chosen ones, in that order."""
    program = """
from innkeeper import auto_choice
def seen():
    return os.environ.get("CUDA_VISIBLE_DEVICES")
before = seen()
with auto_choice(1) as first:
    assert seen() == first.uuids[0] and first.ordinal == 0 and str(first.device) == "cuda:0"
    with auto_choice(0) as second:
        assert seen() == f"{first.uuids[0]},{second.uuids[0]}" and second.ordinals == [1]
        print(first.uuids[0], second.uuids[0])
    assert seen() == first.uuids[0]
assert seen() == before
with auto_choice(0):
    os.environ["CUDA_VISIBLE_DEVICES"] = "7"  # the program's own wish stays
assert seen() == "7"
"""
    assert machine.run(program) == [f"{B} {A}"]
    assert machine.run(program, CUDA_VISIBLE_DEVICES="2,1") == [f"{B} {C}"]
    assert machine.run(program, CUDA_VISIBLE_DEVICES=f"{C[:8]},{A}") == [f"{C} {A}"]
    none = "try:\n    innkeeper.auto_choice()\nexcept RuntimeError as error:\n    print(error)"
    assert "gives this process no GPU" in machine.run(none, CUDA_VISIBLE_DEVICES="")[0]
    assert "no GPU can be seen" in machine.run(none, INNKEEPER_NVML="/nowhere.so")[0]


START_CUDA = """
import ctypes
cuda = ctypes.CDLL(os.environ["FAKE_CUDA"])
start = lambda: cuda.cuInit(0)
"""


def test_a_choice_ends_even_if_a_framework_fails_at_it(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import auto_choice, frameworks
def fail(*_):
    raise KeyError("of a framework")
real = frameworks.forget
for where in ("forget", "leaving"):
    choice = auto_choice(memory=1 << 30)
    if where == "forget":
        frameworks.forget = fail
    else:
        frameworks.forget = real
        choice._entered.callback(fail)
    try:
        choice.release()
    except KeyError as error:
        print(error, choice.lease.held, os.environ.get("CUDA_VISIBLE_DEVICES"))
    choice.release()
"""
    )
    assert said == ["'of a framework' False None"] * 2


def test_ordinals_once_cuda_is_started(machine: FakeMachine):
    """CUDA's order is C, B, A; NVML's is A, B, C."""
    program = (
        START_CUDA
        + """
from innkeeper import auto_choice, visible
assert not visible.cuda_is_started()
start()
assert visible.cuda_is_started()
with auto_choice(0) as choice:
    print(choice.uuids == [A], choice.ordinal, choice.device)
os.environ["CUDA_VISIBLE_DEVICES"] = B  # too late, and not believed
with auto_choice(0) as choice:
    print(choice.uuids == [A], choice.ordinal)
with auto_choice(n=3, memory=1 << 30) as choice:
    print([choice.ordinals[choice.uuids.index(uuid)] for uuid in (A, B, C)])
"""
    )
    assert machine.run(program) == ["True 2 cuda:2", "True 2", "[2, 1, 0]"]


def test_cuda_started_inside_a_choice_sees_that_alone(machine: FakeMachine):
    program = (
        START_CUDA
        + """
from innkeeper import auto_choice
with auto_choice(1) as choice:
    start()
    print(choice.uuids == [B], choice.ordinals)
with auto_choice(0) as choice:  # the view is fixed: there is nothing but B
    print(choice.uuids == [B], choice.ordinals)
print(os.environ.get("CUDA_VISIBLE_DEVICES"))
"""
    )
    assert machine.run(program) == ["True [0]", "True [0]", "None"]


def test_the_vendor_is_pytorch_s(machine: FakeMachine):
    """A PyTorch built for neither takes the best, and os.environ shows the variables set."""
    said = machine.run(
        """
import torch
from innkeeper import auto_choice, lease
def shown():
    return [os.environ.get(f"{name}_VISIBLE_DEVICES") for name in ("CUDA", "ROCR", "HIP")]
with auto_choice() as choice:
    print(choice.uuids == ["GPU-dddddddddddddddd"], shown(), choice.ordinals)
print(shown())
held = lease(vendor="nvidia", memory=1 << 30)
print(held.uuids == [A], shown())
torch.version.cuda = "13.0"
with auto_choice() as choice:
    print(choice.uuids == [C], shown() == [C, "", "0"])  # A was leased
torch.version.cuda, torch.version.hip = None, "7.0"
with auto_choice() as choice:
    print(choice.uuids == ["GPU-dddddddddddddddd"])
torch.cuda.is_initialized = lambda: True
for wrong in (auto_choice, lambda: lease(vendor="intel"), lambda: lease(maker="amd")):
    try:
        wrong()
    except (RuntimeError, TypeError, ValueError) as error:
        print(error)
""",
        **machine.amd(),
        HIP_VISIBLE_DEVICES="0",
    )
    assert said == [
        "True ['', 'GPU-dddddddddddddddd', '0'] [0]",
        "[None, None, '0']",
        "True [None, None, '0']",
        "True True",
        "True",
        "HIP has been started in this process: choose AMD GPUs before that",
        "vendor intel: expected nvidia or amd, or nothing for both",
        "lease(): maker is called vendor now",
    ]


def test_the_document_s_programs_run(machine: FakeMachine):
    blocks = [fence.text for fence in fences(ROOT / "docs" / "choosing.md") if fence.language == "python"]
    blocks = [block for block in blocks if "submitit" not in block]  # Run by test_slurm.py.
    printed = [f"cuda:0 {{'{A}': {8 << 30}}}", f"['{B}'] [40960, 24576, 31744]"]
    assert [machine.run(block) for block in blocks] == [[line] for line in printed]
    cpp = [fence.text for fence in fences(ROOT / "docs" / "choosing.md") if fence.language == "cpp"]
    assert cpp == [(ROOT / "tests" / "consumer" / "choose.cc").read_text()]  # Run by test_cpp.py.


def test_a_child_of_fork_chooses_for_itself(machine: FakeMachine):
    said = machine.run(
        """
from innkeeper import auto_choice
parent = auto_choice(0)
child = os.fork()
if child == 0:
    print(parent.lease.held, os.environ["CUDA_VISIBLE_DEVICES"] == A)
    own = auto_choice(0)  # A is the parent's
    print(own.uuids == [C], os.environ["CUDA_VISIBLE_DEVICES"] == C, own.ordinal)
    parent.release()  # the child's copy: the parent's stays
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print(parent.lease.intact(), os.environ["CUDA_VISIBLE_DEVICES"] == A)
with auto_choice(0) as other:  # the child's lease is gone with it
    print(other.uuids == [C])
"""
    )
    assert said == ["False True", "True True 0", "True True", "True"]


def test_a_child_that_leaves_its_parent_s_choice_changes_nothing(machine: FakeMachine):
    """By the end of ``with``, an exception, or sys.exit(): no framework is called, the parent's stays."""
    said = machine.run(
        """
from innkeeper import auto_choice, frameworks
ended = []
parent_only = os.getpid()
frameworks.forget = lambda choice: ended.append(os.getpid() == parent_only)
kept = auto_choice()
for share in (False, True):
    for how in ("end", "error", "exit"):
        try:
            with auto_choice(1) as choice:
                if share:
                    choice.lease.share_with_children()
                choice._entered.callback(lambda: ended.append(os.getpid() == parent_only))
                child = os.fork()
                if child == 0:
                    if how == "error":
                        raise KeyError
                    if how == "exit":
                        sys.exit(0)
                else:
                    status = os.waitpid(child, 0)[1]
                    print(how, status, choice.lease.intact(), kept.lease.intact(),
                          os.environ["CUDA_VISIBLE_DEVICES"] == f"{A},{B}", flush=True)
        except KeyError:
            pass
        if os.getpid() != parent_only:
            sys.stdout = None
            sys.exit(0 if not ended else 9)
        print(ended, flush=True)
        ended.clear()
"""
    )
    each = [line for how in ("end", "error", "exit") for line in (f"{how} 0 True True True", "[True, True]")]
    assert said == each + each


def test_a_job_inside_a_lease_and_one_that_takes_it_over(machine: FakeMachine):
    said = machine.run(
        """
import subprocess
from innkeeper import lease
whole = lease(memory=10 << 30)
inner = '''
import os, innkeeper, innkeeper.leases
part = innkeeper.lease(memory=4 << 30)
print(part.uuids, flush=True)
try:
    innkeeper.lease(memory=7 << 30)
except innkeeper.LeaseBusy:
    print("no more than it was", flush=True)
if "INNKEEPER_LEASE_FD" in os.environ:
    part.release()
    with innkeeper.leases.adopt() as mine:
        print(mine.claims, flush=True)
'''
job = os.environ | {"INNKEEPER_LEASE": whole.id}
subprocess.run([sys.executable, "-c", inner], env=job, check=True)
descriptor = whole.share_through_exec()
job["INNKEEPER_LEASE_FD"] = str(descriptor)
subprocess.run([sys.executable, "-c", inner], env=job, pass_fds=[descriptor], check=True)
print(whole.intact())  # the job has ended it
try:
    innkeeper.leases.adopt()
except ValueError as error:
    print(error)
"""
    )
    part = [f"['{A}']", "no more than it was"]
    assert said == part + part + [
        f"{{'{A}': {10 << 30}}}",
        "False",
        "this process was started without a lease: INNKEEPER_LEASE_FD is not set",
    ]


def test_waiting_ends_by_release_limit_and_interrupt(machine: FakeMachine):
    said = machine.run(
        """
import signal, threading, time
from innkeeper import auto_choice, lease, LeaseBusy
first = lease(3, memory=20 << 30)
begin = time.monotonic()
try:
    auto_choice(memory=30 << 30, wait=0.3)
except LeaseBusy as error:
    print(str(error).startswith("waited "), 0.3 <= time.monotonic() - begin < 20)
threading.Timer(0.3, first.release).start()
with auto_choice(memory=30 << 30, wait=True) as second:
    print(second.uuids == [A], first.held)
    signal.signal(signal.SIGUSR1, lambda *_: 1 / 0)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        lease(3, memory=30 << 30 >> 1, wait=True, uuids=[A])
    except ValueError:
        print("never")
    try:
        lease(memory=20 << 30, wait=True, uuids=[A])
    except ZeroDivisionError:
        print("interrupted")
    print(len(os.listdir(os.environ["INNKEEPER_LEASE_DIR"])))  # the lock, and second
"""
    )
    assert said == ["True True", "True False", "never", "interrupted", "2"]


def test_a_question_about_a_lease_that_is_changed_stops_no_other_thread(machine: FakeMachine):
    said = machine.run(
        """
import fcntl, threading, time
held = innkeeper.lease(memory=1 << 30)
with open(os.path.join(os.environ["INNKEEPER_LEASE_DIR"], "alloc.lock")) as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)  # resize waits for it, for some seconds
    asks = [lambda: held.resize(2 << 30), *(
        lambda name=name: getattr(held, name) for name in ("id", "claims", "exclusive", "held"))]
    threads = []
    for ask in asks:
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
        time.sleep(0.5)
    print([thread.is_alive() for thread in threads])
for thread in threads:
    thread.join()
print(held.claims[A] == 2 << 30)
"""
    )
    assert said == [str([True] * 5), "True"]


def test_a_killed_holder_leaves_nothing(machine: FakeMachine, start_program: StartProgram):
    program = (
        "import innkeeper, time; a = innkeeper.auto_choice(memory=30 << 30); print(*a.uuids, flush=True)"
    )
    forever = program + "; time.sleep(300)"
    holder = start_program(sys.executable, "-c", forever, env=machine.environment())
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == A
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    time.sleep(0.1)
    assert machine.run("print(innkeeper.auto_choice(memory=30 << 30).uuids[0])") == [A]
