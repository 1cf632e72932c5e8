"""The queue of torch.cuda._lazy_call under run --managed: when its calls run, and on which thread."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

import pytest
from managed_scripts import Scripts


def test_queued_calls_run_once_after_the_start_in_order(scripts: Scripts):
    code = """
import torch
said = []
def say(what):
    return lambda: said.append((what, torch.cuda.is_initialized(), torch.ones(1, device="cuda").item()))
torch.cuda._lazy_call(say("first"))
torch.cuda._lazy_call(say("seed"), seed=True)
torch.cuda._lazy_call(say("second"))
torch.cuda._lazy_call(lambda: torch.cuda._lazy_call(say("within")))
torch.cuda._lazy_call(lambda: torch.cuda.default_generators[1].manual_seed(7))
print(said, torch.cuda.is_initialized())
drawn = torch.rand(3, device="cuda")
print(said)
torch.cuda._lazy_call(say("at once"))
drawn = torch.rand(3, device="cuda:1")
print(said[4:], torch.equal(drawn.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(7))))
torch.cuda.init(); torch.ones(1).cuda()
print(len(said), torch.cuda._queued_calls)
"""
    assert scripts.ok(code).splitlines() == [
        "[] False",
        "[('first', False, 1.0), ('second', False, 1.0), ('within', False, 1.0), ('seed', False, 1.0)]",
        "[('at once', True, 1.0)] True",
        "5 []",
    ]


@pytest.mark.parametrize(
    "first_use",
    [
        "torch.ones(1, device='cuda')",
        "torch.ones(1).cuda()",
        "torch.cuda.init()",
        "torch.UntypedStorage(8, device=torch.device('cuda', 0))",
        "innkeeper.configure('sim:1MiB,host:1GiB')",
        "innkeeper.stats()",
        "innkeeper._C.nodes()",
    ],
)
def test_every_first_use_runs_the_queue(scripts: Scripts, first_use: str):
    code = f"""
import torch, innkeeper
torch.cuda._lazy_call(lambda: print('ran'))
x = {first_use}
print(torch.cuda._initialized)
x = {first_use}
"""
    assert scripts.ok(code) == "ran\nTrue\n"


def test_a_queued_call_runs_outside_of_the_operator_that_starts_the_runtime(scripts: Scripts):
    code = """
import torch
w = torch.nn.Parameter(torch.ones(3))
torch.cuda._lazy_call(lambda: print(type((w * 2).sum().grad_fn).__name__))
with torch.no_grad():
    pass
torch.ones(1, device="cuda")
"""
    assert scripts.ok(code) == "SumBackward0\n"


@pytest.mark.parametrize("use", ["torch.ones(1, device='cuda')", "torch.cuda.init()", "torch.ones(1).cuda()"])
def test_a_queued_call_that_fails_is_an_error_of_each_use_and_nothing_is_lost(scripts: Scripts, use: str):
    code = f"""
import torch
fails, ran = [True], []
torch.cuda._lazy_call(lambda: ran.append("before"))
torch.cuda._lazy_call(lambda: 1 / (not fails))
torch.cuda._lazy_call(lambda: ran.append("after"))
for _ in range(2):
    try:
        {use}
    except torch.cuda.DeferredCudaCallError as error:
        print(type(error.__cause__).__name__, "originally invoked at" in str(error), "script.py" in str(error))
print(ran, len(torch.cuda._queued_calls) >= 3)
fails.clear()
{use}
print(ran, torch.cuda.is_initialized(), torch.cuda._queued_calls)
"""
    assert scripts.ok(code).splitlines() == [
        *["ZeroDivisionError True True"] * 2,
        "['before', 'before'] True",
        "['before', 'before', 'before', 'after'] True []",
    ]


def test_other_threads_wait_until_the_queue_has_run(scripts: Scripts):
    code = """
import threading, time, torch
began = threading.Event()
def slowly():
    began.set(); time.sleep(0.5)
torch.cuda._lazy_call(slowly)
torch.cuda._lazy_call(lambda: torch.cuda.default_generators[0].manual_seed(7))
thread = threading.Thread(target=torch.cuda.init); thread.start(); began.wait()
print(torch.cuda.is_initialized(), torch.cuda._initialized)
drawn = torch.rand(3, device="cuda")
print(torch.equal(drawn.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(7))))
thread.join()
"""
    assert scripts.ok(code) == "False False\nTrue\n"


def test_calls_are_not_lost_while_another_thread_configures(scripts: Scripts):
    code = """
import threading, torch, innkeeper
torch.cuda.init()
ran, stop = [], threading.Event()
def configures():
    while not stop.is_set():
        innkeeper.configure("sim:1MiB,host:64MiB")
thread = threading.Thread(target=configures); thread.start()
states = set()
for i in range(3000):
    torch.cuda._lazy_call(lambda: ran.append(i)); states.add(torch.cuda._initialized)
stop.set(); thread.join()
print(len(ran), torch.cuda._queued_calls, states)
"""
    assert scripts.ok(code) == "3000 [] {True}\n"


def test_a_child_that_a_queued_call_forks_has_no_device(scripts: Scripts):
    code = """
import os, torch
def forks():
    if os.fork() == 0:
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            print("forked" in str(error), flush=True)
        os._exit(0)
    os.wait()
torch.cuda._lazy_call(forks)
torch.cuda._lazy_call(lambda: os.fork() or torch.cuda._lazy_call(lambda: None))  # this child goes on
parent = os.getpid()
try:
    said = torch.ones(1, device="cuda").item()
except RuntimeError as error:
    said = "forked" in str(error)
words = (os.getpid() == parent, said, torch.cuda.is_initialized())
os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole, whatever the other process writes
if os.getpid() == parent:
    os.wait()
"""
    child, *both = scripts.ok(code).splitlines()
    assert child == "True"
    assert sorted(both) == ["False True False", "True 1.0 True"]


def test_threads_that_start_the_runtime_together_run_each_call_once(scripts: Scripts):
    code = """
import sys, threading, torch
sys.setswitchinterval(1e-6)
ran, wrong, ready = [], [], threading.Barrier(8)
for i in range(100):
    torch.cuda._lazy_call(lambda i=i: ran.append(i))
def work(k):
    ready.wait()
    x = torch.ones(4, device="cuda")
    if not (torch.cuda._initialized and torch.cuda.is_initialized()):
        wrong.append(k)
    torch.cuda._lazy_call(lambda: ran.append(100 + k))
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(ran) == list(range(108)), wrong, torch.cuda._queued_calls)
"""
    for _ in range(5):
        assert scripts.ok(code) == "True [] []\n"
