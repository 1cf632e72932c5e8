"""Bad inputs: the exact message, the end of the process, and that nothing is left over.

Inputs of a process (environment variables) run in one of their own; inputs of a call run here or, if they are
nodes, in one process for all.
"""

# ruff: noqa: E501 (lines are as they are printed)
from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import innkeeper
import pytest
from processes import NODES, RunProgram

import torch
from torch import nn

# The nodes, and the line; None if the line names a value that differs between machines or systems.
BAD_NODES = {
    "gpu:64MiB": '"gpu:64MiB" is no node; expected auto, cuda, cuda:0:20GiB, sim:2x64MiB, host:1GiB or disk:/tmp:8GiB',
    "simm:64MiB": '"simm:64MiB" is no node (the nearest is sim); expected auto, cuda, cuda:0:20GiB, sim:2x64MiB,'
    " host:1GiB or disk:/tmp:8GiB",
    "sim": '"sim" has no size, expected sim:SIZE or sim:COUNTxSIZE, as in sim:2x64MiB',
    "sim:64": '"sim:64": size "64" has no unit, expected a number and one of B, KiB, MiB, GiB, TiB, as in 64MiB',
    "sim:2x64MB": '"sim:2x64MB": size "64MB" has the unknown unit "MB", expected a number and one of B, KiB,'
    " MiB, GiB, TiB, as in 64MiB",
    "sim:2x0MiB": '"sim:2x0MiB": a budget of 0 B is too small, expected 64B or more, as in 64MiB',
    "sim:99x1MiB": '"sim:99x1MiB": "99" is no count from 1 to 32, as in sim:2x64MiB',
    "host:1.GiB": '"host:1.GiB": size "1.GiB" has no digit after its point, expected a number and one of B, KiB, MiB,'
    " GiB, TiB, as in 64MiB",
    "host:1GiB,host:1GiB": '"host:1GiB": host was named before, there is one host memory',
    "disk:/tmp": '"disk:/tmp" has no size, expected disk:DIRECTORY:SIZE, as in disk:/tmp:8GiB',
    "disk:/nowhere:1GiB": '"disk:/nowhere:1GiB": directory "/nowhere": No such file or directory, expected a directory that'
    " is there, as in disk:/tmp:8GiB",
    "disk:/proc/version:1GiB": None,
    "auto,sim:1MiB": "auto names the GPUs and host, so sim:0 cannot stand beside it; only a disk can, as in"
    " auto,disk:/tmp:8GiB",
    "cuda,cuda:0": '"cuda:0": cuda means all GPUs, so no GPU can be named beside it',
    "host:1GiB,,": None,
    "sim:1x64MiB;host": '"sim:1x64MiB;host": commas separate nodes, as in "sim:1x64MiB,host"',
    "disk:/proc:1GiB": None,
}

TRY_NODES = """
import json, os, sys, time, innkeeper
def state():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), list(innkeeper.manager().nodes)
def settled():  # the thread that writes for innkeeper top opens its file when it comes to it
    last, since = state(), time.monotonic()
    while time.monotonic() < since + 1:
        if (now := state()) != last:
            last, since = now, time.monotonic()
        time.sleep(0.02)
    return last
innkeeper.configure("host:64MiB")
before, rows = settled(), []
for nodes in sys.argv[1:]:
    try:
        innkeeper.configure(nodes)
        rows.append("accepted")
    except Exception as error:
        rows.append(f"{type(error).__name__}: {error}")
    assert state() == before or settled() == before, (nodes, state(), before)
print(json.dumps(rows))
"""


def test_nodes_that_make_no_sense(run_python: RunProgram):
    done = run_python("-c", TRY_NODES, *BAD_NODES)
    assert done.returncode == 0, done.stderr
    for (nodes, line), said in zip(BAD_NODES.items(), json.loads(done.stdout), strict=True):
        assert said.startswith("ValueError: INNKEEPER_NODES: ") and "\n" not in said, (nodes, said)
        if line is not None:
            assert said == f"ValueError: INNKEEPER_NODES: {line}", nodes


USE = "import torch, innkeeper; print(torch.ones(3, device='managed').sum().item())"
FAILS, GOES_ON = 1, 0
# Variable, value, exit code, and the last line on standard error.
BAD_ENVIRONMENT = [
    ("INNKEEPER_NODES", "gpu:1GiB", FAILS, f"ValueError: INNKEEPER_NODES: {BAD_NODES['gpu:64MiB']}".replace(
        '"gpu:64MiB"', '"gpu:1GiB"')),
    ("INNKEEPER_SIM", "lat", FAILS, 'ValueError: INNKEEPER_SIM: "lat" is no option; expected late, early, random:SEED,'
     " poison=on, poison=off, data=on, data=off, times=told, times=hidden, truth=random:SEED, host=20us, gpu=NAME,"
     " link=NAME or peer=NAME, as in random:42,gpu=H100"),
    ("INNKEEPER_SIM", "data=maybe", FAILS,
     'ValueError: INNKEEPER_SIM: "data=maybe": expected data=on or data=off'),
    ("INNKEEPER_SIM", "data=off,poison=on", FAILS,
     "ValueError: INNKEEPER_SIM: poison=on has nothing to fill beside data=off; leave one of them out"),
    ("INNKEEPER_STRESS", "evcit", FAILS,
     'ValueError: INNKEEPER_STRESS: "evcit" is not a stress; expected evict, hash or recompute'),
    ("INNKEEPER_LOG", "verbose", GOES_ON,
     'innkeeper warn: INNKEEPER_LOG: "verbose" is no level; expected error, warn, info or debug. Going on with warn'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value", "code", "line"), BAD_ENVIRONMENT, ids=["=".join(r[:2]) for r in BAD_ENVIRONMENT]
)
def test_a_bad_environment(
    run_python: RunProgram, variable: str, value: str, code: int, line: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)
    done = run_python("-c", USE, nodes=os.environ["INNKEEPER_NODES"])
    assert done.returncode == code, done.stderr
    assert done.stderr.strip().splitlines()[-1] == line
    assert done.stdout.strip() == ("3.0" if code == GOES_ON else "")


def x() -> torch.Tensor:
    return torch.arange(4.0, device="managed")


def held() -> torch.Tensor:
    tensor = x()
    innkeeper.pin(tensor, "sim:0")
    return tensor


def overfull() -> None:
    for node in ("sim:0", "sim:1"):
        innkeeper.manager().set_budget(node, 1 << 20)
    innkeeper.manager().soft_placement = False
    try:
        with innkeeper.on("sim:0"):
            torch.full((1 << 20,), 2.0, device="managed")
    finally:
        innkeeper.manager().soft_placement = True


def keep_pinned_bytes_out() -> None:
    tensor = held()
    try:
        innkeeper.manager().set_budget("sim:0", 8)
    finally:
        innkeeper.unpin(tensor)


def evict_pinned() -> None:
    tensor = held()
    try:
        innkeeper.evict(tensor)
    finally:
        innkeeper.unpin(tensor)


def write_pinned_elsewhere() -> None:
    tensor = held()
    try:
        with innkeeper.resident(tensor, "sim:1", write=True):
            pass
    finally:
        innkeeper.unpin(tensor)


def quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch will drop them.
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


KNOWN = "the nodes are sim:0, sim:1, host"
BAD_CALLS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "pin, no such node": (lambda: innkeeper.pin(x(), "sim:7"), ValueError,
                          f'pin: there is no node "sim:7"; {KNOWN}'),
    "pin, empty name": (lambda: innkeeper.pin(x(), ""), ValueError, f'pin: there is no node ""; {KNOWN}'),
    "pin, a number": (lambda: innkeeper.pin(x(), 0), TypeError, "pin(): incompatible function arguments"),
    "prefetch, no such node": (lambda: innkeeper.prefetch(x(), "gpu"), ValueError,
                               f'prefetch: there is no node "gpu"; {KNOWN}'),
    "prefetch, CPU tensor": (lambda: innkeeper.prefetch(torch.ones(1), "host"), ValueError,
                             "the tensor is on cpu, not managed: move it with .to('managed') first"),
    "pin, CPU module": (lambda: innkeeper.pin(nn.Linear(1, 1)), ValueError,
                        "'weight' of the module is on cpu, not managed: move it with .to('managed') first"),
    "evict, a list": (lambda: innkeeper.evict([x()]), TypeError, "expected a tensor or a module, got list"),
    "evict, pinned": (evict_pinned, ValueError, "evict: the block is pinned at sim:0; unpin it first"),
    "resident, written elsewhere": (
        write_pinned_elsewhere, ValueError,
        "resident: the block is pinned at sim:0 and cannot be written at sim:1; unpin it first"),
    "resident, no such node": (lambda: innkeeper.resident(x(), "disk").__enter__(), ValueError,
                               f'resident: there is no node "disk"; {KNOWN}'),
    "on, no such node": (lambda: innkeeper.on("sim:9").__enter__(), ValueError, 'there is no node "sim:9"'),
    "on, does not compute": (lambda: innkeeper.on("host").__enter__(), ValueError, "host"),
    "set_budget, no such node": (lambda: innkeeper.manager().set_budget("sim:7", 1), ValueError,
                                 f'set_budget: there is no node "sim:7"; {KNOWN}'),
    "set_budget, nothing": (lambda: innkeeper.manager().set_budget("sim:0", 0), ValueError,
                            "set_budget: a budget is a positive number of bytes"),
    "set_budget, less than nothing": (lambda: innkeeper.manager().set_budget("sim:0", -5), ValueError,
                                      "set_budget: a budget is a positive number of bytes"),
    "set_budget, more than there is": (lambda: innkeeper.manager().set_budget("sim:0", 1 << 40), ValueError,
                                       "set_budget: 1.0 TiB is more than the 16.0 MiB that sim:0 has"),
    "set_budget, less than is pinned": (keep_pinned_bytes_out, torch.OutOfMemoryError,
                                        "set_budget: a budget of 8 B for sim:0 is less than the"),
    "reserve, all": (lambda: setattr(innkeeper.manager(), "reserve", 1.0), ValueError,
                     "reserve is a fraction of a node, 0 or more and less than 1: got 1.0"),
    "budget, no such node": (lambda: innkeeper.manager().budget("tape"), ValueError,
                             f"there is no node 'tape'; {KNOWN}"),
    "log level": (lambda: innkeeper.manager().log("x", "loud"), ValueError,
                  "'loud' is no level of logging: use one of debug, info, warning, error, critical"),
    "too large an operator": (overfull, torch.OutOfMemoryError,
                              "aten::fill_: sim:0 is out of memory. 4.0 MiB asked, "),
    "mixed devices": (lambda: x() + torch.ones(4), RuntimeError,
                      "Expected all tensors to be on the same device, but found at least two devices, managed:0"),
    "a CPU tensor indexed": (lambda: torch.ones(4)[x().long()], IndexError,
                             "indices should be either on cpu or on the same device as the indexed tensor (cpu), but"
                             " some are on managed: take indices.cpu()"),
    "a CPU tensor indexed, written": (lambda: torch.ones(4).index_put_((x().long(),), x()), IndexError,
                                      "indices should be either on cpu"),
    "a managed generator for the CPU": (lambda: torch.rand(3, generator=torch.Generator(device="managed")), RuntimeError,
                                        "Expected a 'cpu' device type for generator but found 'managed'"),
    "one that draws in place": (lambda: torch.ones(3).normal_(generator=torch.Generator(device="managed")),
                                RuntimeError, "Expected a 'cpu' device type for generator but found 'managed'"),
    "another managed device": (lambda: torch.ones(1, device="managed:1"), RuntimeError, "managed:1"),
    "quantized, copied from": (lambda: x().copy_(quantized()), RuntimeError,
                               "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use"
                               " dequantize to get a float Tensor from a quantized Tensor"),
    "quantized, mixed devices": (lambda: torch.cat([quantized().to("managed"), quantized()]), RuntimeError, "Expected all tensors to be on the same device, but found at least two"
                                 " devices, managed:0 and cpu!"),
    "lengths on the device": (lambda: nn.utils.rnn.pack_padded_sequence(x().view(2, 2, 1), x()[:2].long()), RuntimeError,
                              "'lengths' argument should be a 1D CPU int64 tensor, but got 1D managed:0 Long tensor"),
    "semi-structured": (lambda: torch.sparse.to_sparse_semi_structured(x().view(1, 4).half()), RuntimeError,
                        "device= managed:0 is not supported! Only CUDA tensors are currently supported."),
    "configure in use": (lambda: (x(), innkeeper.configure("host:64MiB")), ValueError,
                         "configure: 1 managed storages are alive; configure the nodes before the first tensor, or after"
                         " the last is gone"),
    "configure, no text": (lambda: innkeeper.configure(5), TypeError, "nodes is a str such as 'sim:2x64MiB,host:1GiB', an innkeeper.Node or a list of these, got int"),
    "shape": (lambda: x() @ torch.ones(3, 3, device="managed"), RuntimeError,
              "mat1 and mat2 shapes cannot be multiplied (1x4 and 3x3)"),
}  # fmt: skip


def resources() -> tuple[int, int, dict[str, tuple[int, int]]]:
    torch.managed.synchronize()
    nodes = innkeeper.stats()["nodes"]
    held = {name: (row["resident"], row["pinned"]) for name, row in nodes.items()}
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), held


@pytest.mark.parametrize("case", BAD_CALLS)
@pytest.mark.usefixtures("refuse_mixed")
def test_a_bad_call(case: str):
    call, kind, line = BAD_CALLS[case]
    assert os.environ["INNKEEPER_NODES"] == NODES
    budget = innkeeper.manager().budget("sim:0")
    x()  # The device has been used.
    before = resources()
    try:
        with pytest.raises(kind) as raised:
            call()
        said = str(raised.value)
        assert said.startswith(line) or line in said, said
        if kind is not TypeError:
            assert "\n" not in said.split("\nException raised", 1)[0], said
        del raised
    finally:
        for node in ("sim:0", "sim:1"):
            innkeeper.manager().set_budget(node, budget)
    assert resources() == before


@pytest.mark.parametrize(
    "ends",
    [
        lambda base: (base[:30], base[10:40]),
        lambda base: (base[:1], base.as_strided((1,), (2,))),  # One element, which its strides distinguish.
    ],
    ids=["shifted", "one element"],
)
def test_a_copy_within_a_storage_is_refused_where_plain_pytorch_refuses_it(ends):
    def attempt(device):
        base = torch.arange(60.0, device=device)
        to, source = ends(base)
        with pytest.raises(RuntimeError, match="single memory location"):
            to.copy_(source)
        return base.cpu()

    assert torch.equal(attempt("managed"), attempt("cpu"))


@pytest.mark.parametrize(
    "shapes", [((0, 15), (0, 0)), ((15, 0), (7, 0)), ((1, 0), (5, 0)), ((0,), (3,)), ((0,), (1,))]
)
@pytest.mark.parametrize("devices", [("managed", "managed"), ("managed", "cpu"), ("cpu", "managed")])
def test_shapes_of_empty_tensors_are_checked_by_copies_as_on_the_cpu(shapes, devices):
    def attempt(*devices):
        to, source = (
            torch.zeros(shape, device=device) for shape, device in zip(shapes, devices, strict=True)
        )
        try:
            return to.copy_(source).shape
        except RuntimeError as error:
            return str(error)

    assert attempt(*devices) == attempt("cpu", "cpu")


@pytest.mark.parametrize("why", ["pinned", "no room"])
def test_a_tensor_that_cannot_be_resized_shows_what_it_did(why, configure):
    configure("sim:2x1MiB,host:2MiB")
    x = torch.arange(12.0, device="managed").view(3, 4)[:, 1:]
    pins = ("sim:0", "sim:1") if why == "pinned" else ()
    for node in pins:
        innkeeper.pin(x, node)
    wanted = 100 if why == "pinned" else 10 << 20
    for change in (
        lambda: x.resize_(wanted),
        lambda: x.set_(x.untyped_storage(), 4, (wanted,)),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            change()
        assert (tuple(x.shape), x.stride(), x.storage_offset()) == ((3, 3), (4, 1), 1)
        assert x.tolist() == [[1, 2, 3], [5, 6, 7], [9, 10, 11]]
    for _ in pins:
        innkeeper.unpin(x)


@pytest.mark.parametrize("change", ["set_", "data"])
@pytest.mark.parametrize("kind", ["read", "written", "list"])
def test_a_python_operator_may_give_its_operand_other_memory(change, kind):
    library = torch.library.Library(f"taken_{kind}_{change}", "DEF")
    schemas = {"read": "Tensor x", "written": "Tensor(a!) x", "list": "Tensor(a!)[] x"}
    library.define(f"run({schemas[kind]}) -> ()")
    x = torch.ones(1000, device="managed")
    told, others = [], [x]  # PyTorch keeps the function for good: it must not keep the tensor.

    def run(given):
        real = given[0] if kind == "list" else given
        if change == "data":
            others[0].data = torch.full((3,), 7.0, device="managed")
        else:
            others[0].set_(torch.full((3,), 7.0, device="managed"))
        told.append(real.sum().item())
        if kind != "read":
            real.add_(1)

    library.impl("run", run, "CPU")
    operator = getattr(torch.ops, f"taken_{kind}_{change}").run
    operator([x] if kind == "list" else x)
    others.clear()
    assert told == [1000]
    assert x.tolist() == [7, 7, 7], "what it shows since then is not what was written"
