"""A forked child has no managed device: it gets a one-line error, and nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import RunProgram

PRELUDE = """
import os, signal, sys, threading
import torch, innkeeper

def child(work):
    "Forks; returns what work() raised in the child, or 'fine'."
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a hang ends the child
        torch.set_num_threads(1)  # OpenMP itself does not survive a fork
        try:
            work()
            said = "fine"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with open(read) as file:
        said = file.read()
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"the child ended with {status}"
    return said
"""

ENTRIES = """
x = torch.arange(1 << 16, device="managed", dtype=torch.float32)
y = x + 1
generator = torch.Generator("managed")
for nbytes in range(8):
    innkeeper.evict(x)
entries = {
    "read a spilled tensor": lambda: x.sum().item(),
    "cpu": lambda: y.cpu(),
    "factory": lambda: torch.ones(3, device="managed"),
    "empty": lambda: torch.empty(3, device="managed"),
    "lists": lambda: torch._foreach_add_([x, y], 1),
    "resize": lambda: x.resize_(1 << 17),
    "random": lambda: x.normal_(),
    "print": lambda: repr(x),
    "where": lambda: innkeeper.where(x),
    "pin": lambda: innkeeper.pin(x),
    "evict": lambda: innkeeper.evict(x),
    "prefetch": lambda: innkeeper.prefetch(x, "host"),
    "resident": lambda: innkeeper.resident(x).__enter__(),
    "stats": innkeeper.stats,
    "summary": innkeeper.summary,
    "configure": lambda: innkeeper.configure("host:1GiB"),
    "budget": lambda: innkeeper.manager().set_budget("host", 1 << 20),
    "synchronize": torch.managed.synchronize,
    "empty_cache": torch.managed.empty_cache,
    "accelerator": torch.accelerator.synchronize,
    "seed": lambda: torch.managed.manual_seed(1),
    "rng state": torch.managed.get_rng_state,
    "experiment": lambda: innkeeper.experiment("a").__enter__(),
    "memory": torch.managed.mem_get_info,
    "invariants": innkeeper.manager().check_invariants,
    "samples": lambda: innkeeper.manager().start_samples(1),
}
for name, work in entries.items():
    print(name, "|", child(work))
node = innkeeper.manager().find_device(1)
experiment, on, lent = innkeeper.experiment("a"), innkeeper.on(node), innkeeper.resident(y)
for context in (experiment, on, lent):
    context.__enter__()
print("leave |", child(lambda: [context.__exit__(None, None, None) for context in (lent, on, experiment)]))
for context in (lent, on, experiment):
    context.__exit__(None, None, None)
print("free |", child(lambda: globals().__delitem__("y")))
print("seed of the CPU |", child(lambda: torch.manual_seed(1)))
print("CPU |", child(lambda: torch.randn(100, 100) @ torch.randn(100, 100)))
print("pinned |", child(lambda: torch.ones(3).pin_memory().is_pinned()))
print("known |", child(lambda: [x.shape, x.device, x.stride(), torch.managed._is_in_bad_fork() or 1 / 0,
                               torch.managed.is_initialized() and 1 / 0]))
print("exits |", os.waitpid(os.spawnlp(os.P_NOWAIT, "true", "true"), 0)[1])
pid = os.fork()
if pid == 0:
    sys.exit(0)  # runs what is registered for the end
print("ends |", os.waitpid(pid, 0)[1])
print("parent |", y.sum().item() == (1 << 16) * ((1 << 16) + 1) / 2)
"""
REFUSAL = "the managed device cannot be used in a process that was forked after its first use"


@pytest.mark.parametrize("nodes", ["sim:2x16MiB,host:1GiB", "host:1GiB", "host:64MiB,disk:/tmp:64MiB"])
def test_every_entry_refuses_in_one_line(run_python: RunProgram, nodes: str):
    done = run_python("-c", PRELUDE + ENTRIES, nodes=nodes)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" | ") for line in done.stdout.splitlines())
    # Workers of data loaders seed every device and empty caches: as with CUDA, that does nothing here.
    fine = {"leave", "free", "seed", "empty_cache", "seed of the CPU", "CPU", "pinned", "known"}
    for name, line in said.items():
        if name in fine:
            assert line == "fine", (name, line)
        elif name in ("exits", "ends"):
            assert line == "0", (name, line)
        elif name == "parent":
            assert line == "True"
        else:
            assert REFUSAL in line, (name, line)
            assert "'spawn'" in line


# Threads that hold the engine's locks, and those of the accounts, as often as possible.
BUSY = """
stop = False
def work(seed):
    mine = [torch.ones(4096, device="managed") for _ in range(64)]
    while not stop:
        for x in mine:
            x.add_(1)
        innkeeper.evict(mine[seed])
        y = [x * 2 for x in mine]
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for thread in threads:
    thread.start()
inherited = [torch.ones(1000, device="managed") for _ in range(10)]
plain = [torch.ones(1000) for _ in range(10)]

def in_child():
    inherited.clear()
    plain.clear()
    for _ in range(20):
        a = torch.randn(50, 50) @ torch.randn(50, 50)
        torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))

torch.set_num_threads(1)
said = {child(in_child) for _ in range(60)}
stop = True
for thread in threads:
    thread.join()
print(said)
"""


@pytest.mark.parametrize("nodes", ["sim:2x16MiB,host:1GiB", "host:1GiB"])
def test_a_child_that_only_frees_never_hangs(run_python: RunProgram, nodes: str):
    done = run_python("-c", PRELUDE + BUSY, nodes=nodes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'fine'}"


LOADER = """
from torch.utils.data import DataLoader, Dataset

class Holds(Dataset):
    def __init__(self):
        self.x = torch.arange(32.0, device="managed")
        innkeeper.evict(self.x)
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return self.x[i].cpu()

class Plain(Holds):
    def __getitem__(self, i):
        return torch.tensor(float(i))

if __name__ == "__main__":
    total = sum(batch.to("managed").sum().item() for batch in DataLoader(Plain(), 8, num_workers=2))
    print(total == sum(range(32)))
    total = sum(b.to("managed").sum().item() for b in DataLoader(Plain(), 8, num_workers=2, pin_memory=True))
    print(total == sum(range(32)))
    try:
        for batch in DataLoader(Holds(), 8, num_workers=2):
            pass
    except RuntimeError as error:
        print(str(error).splitlines()[-1])
"""


def test_workers_of_a_data_loader(run_python: RunProgram):
    done = run_python("-c", PRELUDE + LOADER)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["True", "True"]
    assert REFUSAL in lines[2]


def test_what_a_child_frees_is_not_in_its_parents_record(run_python: RunProgram, tmp_path: Path):
    program = """
y = torch.ones(1 << 16, device="managed")
with innkeeper.record(sys.argv[1]) as recording:
    y.add_(1)
    print(child(lambda: globals().__delitem__("y")))
    print(child(recording.step))
    y.add_(2)
    recording.step()
"""
    path = tmp_path / "t"
    done = run_python("-c", PRELUDE + program, str(path), nodes="sim:16MiB,host:1GiB")
    assert done.returncode == 0, done.stderr
    free, step = done.stdout.splitlines()
    assert free == "fine" and REFUSAL in step
    assert [line.split()[:2] for line in path.read_text().splitlines()] == [
        ["O", "aten::add_"], ["O", "aten::add_"], ["M", "step"],
    ]  # fmt: skip
