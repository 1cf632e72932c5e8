"""A failing small allocation at any place: each verb succeeds, or leaves all unchanged with an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.build]

# Fails the n-th malloc() of the thread that says so, or of any, once.
FAILING = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
extern void *__libc_malloc(size_t);
static atomic_int armed;
static atomic_long count, at, thread;
void arm(long n, int any) {
  count = 0, at = n, thread = any ? 0 : syscall(SYS_gettid), armed = 1;
}
long disarm(void) {
  armed = 0;
  return count;
}
void *malloc(size_t size) {
  if (armed && (thread == 0 || syscall(SYS_gettid) == thread) && atomic_fetch_add(&count, 1) == at) {
    errno = ENOMEM;
    return 0;
  }
  return __libc_malloc(size);
}
"""
START = """
import ctypes, os, sys, threading, warnings
import innkeeper, torch
warnings.simplefilter("ignore")
torch.set_num_threads(1)
xs = [torch.full((10000,), float(i), device="managed") for i in range(10)]
VERBS = {
    "evict": lambda: innkeeper.evict(xs[9]),
    "prefetch": lambda: innkeeper.prefetch(xs[0], "sim:0"),
    "pin": lambda: (innkeeper.pin(xs[0], "sim:0"), innkeeper.unpin(xs[0])),
    "resident": lambda: innkeeper.resident(xs[3], "sim:0").__enter__().__class__,
    "add": lambda: xs[0] + 1,
    "in place": lambda: xs[2].add_(0),
    "list": lambda: torch._foreach_add(xs[:4], 1),
    "delete": lambda: xs[1].clone().add_(1),
    "read": lambda: xs[5].cpu(),
    "write": lambda: torch.empty(10000, device="managed").copy_(torch.ones(10000)),
    "budget": lambda: innkeeper.manager().set_budget("host", 2 << 20),
}
del VERBS["resident"]


def check():
    innkeeper.manager().check_invariants()
    for name, node in innkeeper.stats()["nodes"].items():
        assert node["resident"] == node["recount"], (name, node)
    for i, x in enumerate(xs):
        assert (x.cpu() == i).all(), f"tensor {i} has changed"
"""
SWEEP = """
library = ctypes.CDLL(sys.argv[1])
library.disarm.restype, library.arm.argtypes = ctypes.c_long, [ctypes.c_long, ctypes.c_int]
failed = tried = 0
for name, verb in VERBS.items():
    verb()
    for n in range(2000):
        result = None
        library.arm(n, int(sys.argv[2]))
        try:
            result = verb()
        except (MemoryError, RuntimeError):
            failed += 1
        used = library.disarm()
        del result
        check()
        tried += 1
        if used <= n:
            break
    else:
        raise SystemExit(f"{name} allocates more than 2000 times")
print("sound,", tried, "tried")
"""
BOUNDED = """
import resource
if sys.argv[1] == "thread":
    run = lambda body: (lambda t: (t.start(), t.join()))(threading.Thread(target=body))
else:
    run = lambda body: body()
kept, refused = [], set()


def body():
    # The C library ends a process that first touches a thread's variables when there is no memory for them:
    # all that is called below, and an exception, touches them here.
    for verb in VERBS.values():
        verb()
    try:
        torch.empty(1 << 50, device="managed")
    except RuntimeError:
        pass
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 20), resource.RLIM_INFINITY))
    for turn in range(3000):
        try:
            kept.append(bytearray(2000 + turn % 777))
        except MemoryError:
            refused.add("bytes")
        for name, verb in VERBS.items():
            try:
                verb()
            except (MemoryError, RuntimeError) as error:
                refused.add(name)
        if len(refused) > 2 and turn > 600:
            break


run(body)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kept.clear()
check()
print("sound,", len(refused), "refused")
"""


def run(script: str, *words: str, **more: str) -> str:
    nodes = f"sim:1x256KiB,host:2MiB,disk:{os.environ.get('TMPDIR', '/tmp')}:64MiB"
    env = os.environ | {"INNKEEPER_NODES": nodes, "OMP_NUM_THREADS": "1"} | more
    command = [sys.executable, "-c", START + script, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory: Path = tmp_path_factory.mktemp("failing")
    (directory / "failing.c").write_text(FAILING)
    library = str(directory / "failing.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, directory / "failing.c"], check=True)
    return library


@pytest.mark.parametrize("threads", ["this", "any"])
def test_each_allocation_of_each_verb_fails_in_turn(failing: str, threads: str) -> None:
    said = run(SWEEP, failing, str(int(threads == "any")), LD_PRELOAD=failing)
    assert said.startswith("sound") and int(said.split()[1]) > 100, said


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_process_that_may_have_no_more_memory(where: str) -> None:
    assert run(BOUNDED, where).startswith("sound")
