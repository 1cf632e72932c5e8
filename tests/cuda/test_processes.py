"""Processes with settings of their own: they fork, end, have an old driver, other GPUs' names, no peers.

A violation of CUDA's rules ends each with a status of its own (tests/fake_cuda/runtime/report.h).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MIB = 1 << 20
HERE = Path(__file__).parent
PATH = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
PRELUDE = """
import gc, os, signal, sys, threading
import torch, innkeeper, fake
from patterns import check, many, node, pattern
MIB = 1 << 20
"""


@pytest.fixture(scope="module", autouse=True)
def ready() -> Iterator[None]:
    """Forks processes that have imported PyTorch (ready.py), for run()."""
    environment = os.environ | {"PYTHONPATH": PATH}
    command = [sys.executable, str(HERE / "ready.py")]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        run.ready = process
        yield
        process.stdin.close()


def run(script: str, fresh: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own; `fresh`: a new interpreter, for tests of the process's start."""
    settings = {
        "PYTHONPATH": PATH,
        "INNKEEPER_NODES": "cuda:0:64MiB,host:1GiB",
        "FAKE_CUDA_GPUS": "2",
        "FAKE_CUDA_MEMORY": str(256 * MIB),
    }
    environment = os.environ | settings | environment
    script = PRELUDE + script
    if fresh:
        return subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    with tempfile.TemporaryDirectory() as directory:
        output, errors = Path(directory, "output"), Path(directory, "errors")
        order = {"script": script, "environment": environment, "output": str(output), "errors": str(errors)}
        print(json.dumps(order), file=run.ready.stdin, flush=True)
        status = int(run.ready.stdout.readline())
        return subprocess.CompletedProcess("ready.py", status, output.read_text(), errors.read_text())


def passes(script: str, fresh: bool = False, **environment: str) -> str:
    done = run(script, fresh, **environment)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr[-3000:]}"
    return done.stdout


FORK = """
pairs = many(12)
own = torch.ones(MIB, device="cuda")
shared = torch.cuda.Stream()
own.record_stream(shared)
torch.cuda.synchronize()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    try:
        pairs[0][1].cpu()
        os._exit(3)
    except RuntimeError as error:
        assert "forked" in str(error), error
    pairs.clear()
    del own
    gc.collect()
    sys.stderr.flush()
    {end}
status = os.waitpid(pid, 0)[1]
assert status == 0, status
check(pairs)
"""


@pytest.mark.parametrize("end", ["os._exit(86 if fake.ask('violations') else 0)", "sys.exit(0)"])
def test_a_forked_child_calls_nothing_of_cuda(end: str) -> None:
    passes(FORK.format(end=end), fresh=True)


@pytest.mark.parametrize("mode", ["late", "early"])
def test_at_the_end_nothing_calls_a_runtime_that_has_gone(mode: str) -> None:
    passes(
        """
pairs = many(12)
own = torch.ones(MIB, device="cuda")
innkeeper.evict(pairs[-1][1])      # copies that nobody waited for
innkeeper.prefetch(pairs[0][1], "cuda:0")
builtin = sys.modules["builtins"]
builtin.kept = pairs               # freed by the interpreter's last breath, or never
sys.modules["kept"] = own
import atexit
atexit.register(lambda: pairs[3][1].add_(1).cpu())
""",
        fresh=True,
        FAKE_CUDA_MODE=mode,
    )


def test_a_process_whose_gpu_is_gone_ends_in_order() -> None:
    passes(
        """
pairs = many(12)
fake.ask("break", 0, 999)
try:
    pairs[-1][1].add_(1)
    sys.exit(3)
except torch.AcceleratorError as error:
    print(error)
""",
        fresh=True,
    )


def test_an_old_driver_is_named_where_a_gpu_is_requested() -> None:
    done = run('torch.ones(3, device="managed")', FAKE_CUDA_DRIVER="12080")
    assert done.returncode == 1
    assert "cuda:0" in done.stderr.splitlines()[-1], done.stderr[-500:]
    passes(
        'assert torch.ones(3, device="managed").sum().item() == 3',
        FAKE_CUDA_DRIVER="12080",
        INNKEEPER_NODES="",
    )


def test_a_machine_without_gpus_is_the_host() -> None:
    passes('assert innkeeper.where(torch.ones(3, device="managed")) == ["host"]',
           FAKE_CUDA_GPUS="0", INNKEEPER_NODES="")  # fmt: skip


@pytest.mark.parametrize(
    ("visible", "first"), [("1,0", 0xA1), ("0,1", 0xA0), ("GPU-a1", 0xA1), ("1", 0xA1), ("1,9,0", 0xA1)]
)
def test_nodes_are_the_visible_gpus_in_their_order(visible: str, first: int) -> None:
    passes(
        f"""
count = torch.cuda.device_count()
assert [n for n in innkeeper.manager().nodes if n != "host"] == [f"cuda:{{i}}" for i in range(count)]
uuid = str(torch.cuda.get_device_properties(0).uuid)
assert uuid[:2] == "{first:02x}", uuid
with innkeeper.on("cuda:0"):
    x = torch.ones(MIB, device="managed")
assert x.sum().item() == MIB and fake.ask("used", 0) >= 4 * MIB
""",
        CUDA_VISIBLE_DEVICES=visible,
        INNKEEPER_NODES="cuda:64MiB,host:1GiB",
    )


@pytest.mark.parametrize(
    "machine",
    [
        {"FAKE_CUDA_MIG": "1", "CUDA_VISIBLE_DEVICES": "MIG-a0"},
        {"FAKE_CUDA_MPS": "1"},
        {"FAKE_CUDA_UNIFIED": "1", "INNKEEPER_NODES": "cuda:0:64MiB,host:128MiB"},
        {"FAKE_CUDA_PEERS": "0", "INNKEEPER_NODES": "cuda:0:64MiB,cuda:1:64MiB,host:1GiB"},
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"},
    ],
    ids=["MIG", "MPS", "unified", "no peers", "fixed segments"],
)
def test_bytes_survive_on_other_machines(machine: dict[str, str]) -> None:
    passes(
        """
pairs = many(20)
for i, (original, managed) in enumerate(pairs):
    with innkeeper.on(list(innkeeper.manager().nodes)[i % (len(innkeeper.manager().nodes) - 1)]):
        managed.add_(1)
check([(original + 1, managed) for original, managed in pairs])
assert innkeeper.stats()["evictions"] > 0
""",
        fresh="PYTORCH_CUDA_ALLOC_CONF" in machine,  # PyTorch reads the variable when it is imported.
        **machine,
    )


def test_a_gpu_that_shares_the_host_s_memory_leaves_it_a_little(tmp_path: Path) -> None:
    machine = {"FAKE_CUDA_UNIFIED": "1", "FAKE_CUDA_GPUS": "1"}
    passes(
        """
budgets = {name: node["budget"] for name, node in innkeeper.stats()["nodes"].items()}
assert budgets["host"] == 16 * MIB and budgets["cuda:0"] == 192 * MIB, budgets
check(many(80))
assert innkeeper.stats()["nodes"]["disk"]["peak"] > 0
""",
        INNKEEPER_NODES=f"cuda,host,disk:{tmp_path}:1GiB",
        **machine,
    )
    done = run('torch.ones(1, device="managed")', INNKEEPER_NODES="cuda:0:200MiB,host:100MiB", **machine)
    assert "cuda:0's 200.0 MiB and host's 100.0 MiB are of one memory" in done.stderr, done.stderr


def test_what_a_user_s_threads_do_at_once_is_in_order() -> None:
    passes(
        """
def work(number):
    torch.manual_seed(number)
    for i in range(6):
        x = pattern(number * 10 + i, 4).to("managed")
        for _ in range(3):
            x.add_(1)
        assert torch.equal(x.cpu(), pattern(number * 10 + i, 4) + 3)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
"""
    )


SHARE = """
print(list(innkeeper.manager().nodes), innkeeper.manager().budget("cuda:" + sys.argv[-1]) // MIB)
"""


@pytest.mark.parametrize("nodes", ["auto", "cuda"])
def test_processes_of_torchrun_part_the_gpus(nodes: str) -> None:
    def said(rank: int, count: int, gpu: int, nodes: str = nodes) -> str:
        script = f"sys.argv.append('{gpu}')\n{SHARE}"
        share = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count)}
        return passes(script, INNKEEPER_NODES=nodes, **share).strip()

    whole = int(said(0, 1, 0).rsplit(" ", 1)[1])
    assert said(0, 2, 0) == f"['cuda:0', 'host'] {whole}"
    assert said(1, 2, 1) == f"['cuda:1', 'host'] {whole}"
    assert said(1, 3, 1) == f"['cuda:1', 'host'] {whole}"
    node, half = said(2, 3, 0).rsplit(" ", 1)
    assert node == "['cuda:0', 'host']" and abs(int(half) - whole // 2) <= 1
    assert int(said(1, 2, 0, "cuda:0").rsplit(" ", 1)[1]) == int(half), "all name the same GPU"
    assert said(1, 2, 1, f"{nodes}:32MiB") == "['cuda:1', 'host'] 32"


def test_without_growth_the_budget_is_taken_at_once() -> None:
    script = """
torch.ones(1, device="managed")
print(fake.ask("used", 0) // MIB)
pairs = many(12)  # more than fits, all out of what was taken
check(pairs)
print(fake.ask("used", 0) // MIB)
"""
    first, last = map(int, passes(script, INNKEEPER_GROWTH="off").split())
    assert 64 <= first <= 64 + 20 + 2, "in segments of 20 MiB, and one for small pieces"
    assert last <= 64 + 64 // 16 + 64, "never more than the cache may have"
    assert int(passes(script).split()[0]) < 64


def test_without_growth_a_gpu_that_has_less_is_refused_and_another_machine_goes_on() -> None:
    passes(
        """
with fake.others_hold(0, 224 * MIB):
    try:
        innkeeper.configure("cuda:0:64MiB,host:1GiB", growth=False)
        sys.exit("configured")
    except torch.OutOfMemoryError as error:
        assert "64.0 MiB" in str(error) and "32.0 MiB free" in str(error), error
    assert torch.ones(3, device="managed").sum().item() == 3
innkeeper.configure("cuda:0:64MiB,host:1GiB", growth=False)
check(many(8))
innkeeper.configure("cuda:0:16MiB,host:1GiB", growth=True)
check(many(8))
"""
    )
