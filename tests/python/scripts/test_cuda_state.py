"""State that torch.cuda reports under run --managed: docs/design/cuda_state.md, row by row."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from managed_scripts import Scripts
from repository import ROOT

import torch

PAGE = ROOT / "docs" / "design" / "cuda_state.md"

# Each question runs in a child of its own, since a runtime that has started stays so.
ASKED = """
import json, os, torch

def started_by(text):
    ours, theirs = os.pipe()
    if os.fork() == 0:
        try:
            exec(text, {"torch": torch})
            said = torch.cuda.is_initialized(), torch.cuda._initialized, len(torch.cuda.default_generators)
        except BaseException as error:
            said = repr(error)
        os.write(theirs, json.dumps(said).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        return json.load(pipe)

print(json.dumps({text: started_by(text) for text in %r}))
"""
STARTS = """init()
_lazy_init()
current_device()
set_device(0)
device(0).__enter__()
synchronize()
memory_summary()
current_stream()
default_stream()
Stream()
get_rng_state()
get_rng_state_all()
initial_seed()
mem_get_info()
get_device_properties()
get_device_name()
get_device_capability(1)
is_bf16_supported()
is_tf32_supported()
can_device_access_peer(0, 1)
reset_peak_memory_stats()
ipc_collect()
_get_rng_state_offset()
_exchange_device(1)"""
DOES_NOT = """is_available()
device_count()
manual_seed(1)
manual_seed_all(1)
seed()
seed_all()
set_rng_state(torch.Generator("cuda").get_state())
set_rng_state_all([torch.Generator("cuda").get_state()])
memory_allocated()
max_memory_allocated(1)
memory_reserved()
max_memory_reserved()
memory_stats()["num_ooms"]
memory_stats_as_nested_dict()
empty_cache()
get_arch_list()
is_current_stream_capturing()
is_initialized()
_is_in_bad_fork()
_lazy_call(lambda: 1 / 0)
default_generators
Event()
nvtx.mark("here")
get_allocator_backend()"""
OF_TORCH = """torch.manual_seed(1)
torch.seed()
torch.random.fork_rng(devices=[]).__enter__()
torch.accelerator.is_available()
torch.accelerator.device_count()
torch.Generator("cuda")
torch.device("cuda")
torch.get_device_module("cuda")
import torch.testing._internal.common_cuda
import torch._dynamo.device_interface"""


def test_what_initializes_cuda_starts_the_runtime_and_nothing_else_does(scripts: Scripts):
    starting = [f"torch.cuda.{line}" for line in STARTS.splitlines()] + ["torch.ones(1, device='cuda')"]
    if torch.backends.cuda.is_built():
        starting.remove("torch.cuda._exchange_device(1)")  # CUDA's own
    others = [f"torch.cuda.{line}" for line in DOES_NOT.splitlines()] + OF_TORCH.splitlines()
    found = json.loads(scripts.ok(ASKED % (starting + others)))
    assert found == {text: [True, True, 2] for text in starting} | {
        text: [False, False, 0] for text in others
    }


def test_a_program_may_fork_after_it_has_looked_for_devices(scripts: Scripts):
    code = """
import os, torch
torch.manual_seed(3)
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.memory_allocated(1), flush=True)
if os.fork() == 0:
    print(torch.rand(2, device="cuda").tolist(), torch.cuda.is_initialized(), flush=True)
    os._exit(0)
os.wait()
print(torch.rand(2, device="cuda").tolist(), torch.cuda.is_initialized())
"""
    looked, child, parent = scripts.ok(code).splitlines()
    assert looked == "True 2 0" and child == parent and parent.endswith("True")


@pytest.mark.parametrize(
    ("nodes", "visible", "names"),
    [
        ("sim:3x8MiB,host:1GiB", None, ["sim:0", "sim:1", "sim:2"]),
        ("sim:3x8MiB,host:1GiB", "2,0", ["sim:2", "sim:0"]),
        ("sim:3x8MiB,host:1GiB", "", []),
        ("host:1GiB", None, ["host"]),
        ("", None, ["host"]),
    ],
)
def test_devices_are_the_same_before_and_after_the_start(
    scripts: Scripts, nodes: str, visible: str | None, names: list[str]
):
    code = """
import torch
from innkeeper import _C
from innkeeper.cuda_compat import visible
before = visible.nodes(), _C.started(), torch.cuda.device_count()
_C.start()
print(before, visible.nodes(), torch.cuda.device_count())
"""
    if torch.backends.cuda.is_built() and torch.cuda.device_count() and nodes == "":
        names = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    hide = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {visible!r}\n" if visible is not None else ""
    said = scripts.ok(hide + code, INNKEEPER_NODES=nodes)
    assert said == f"({names}, False, {len(names)}) {names} {len(names)}\n"


@pytest.mark.parametrize("nodes", ["sim:2x", "cuda,host:1GiB", "cuda:0:1GiB"])
def test_nodes_that_make_no_sense_are_named_before_the_start(scripts: Scripts, tmp_path: Path, nodes: str):
    if "cuda" in nodes and torch.backends.cuda.is_built():
        pytest.skip("this build of PyTorch has CUDA")
    (tmp_path / "script.py").write_text("import torch\nprint(torch.cuda.device_count())\n")
    done = scripts.run("script.py", INNKEEPER_NODES=nodes)
    assert done.returncode == 1 and "INNKEEPER_NODES" in done.stderr.splitlines()[-1]


def test_a_forked_child_of_a_started_process(scripts: Scripts):
    code = """
import os, torch
x = torch.ones(1, device="cuda")
if os.fork() == 0:
    torch.manual_seed(1); torch.seed(); torch.cuda.manual_seed(1); torch.cuda.manual_seed_all(1); torch.cuda.seed()
    torch.cuda.seed_all(); torch.cuda.set_rng_state(torch.get_rng_state()); torch.cuda.empty_cache()
    torch.managed.manual_seed_all(1); torch.managed.seed(); torch.managed.empty_cache()
    torch.managed.set_rng_state(torch.get_rng_state())
    torch.cuda._lazy_call(lambda: print("never"))
    print(torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized(), torch.cuda._initialized)
    print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.memory_allocated(), torch.cuda.memory_stats())
    for use in (torch.cuda.init, torch.cuda.current_device, torch.cuda.get_rng_state, torch.cuda.synchronize):
        try:
            use()
        except RuntimeError as error:
            print(str(error)[:50])
    y = torch.utils.checkpoint.checkpoint(torch.nn.Dropout(0.5), torch.ones(2, requires_grad=True), use_reentrant=False)
    y.sum().backward()
    print(y.device, flush=True)
    os._exit(0)
os.wait()
print(torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized())
"""
    assert scripts.ok(code).splitlines() == [
        "True False False",
        "True 2 0 {}",
        *["Cannot re-initialize CUDA in forked subprocess. To"] * 4,
        "cpu",
        "False True",
    ]


def test_a_device_that_is_first_used_within_a_checkpoint_is_refused_as_by_cuda(scripts: Scripts):
    code = """
import torch
from torch.utils.checkpoint import checkpoint
x = torch.ones(2, requires_grad=True)
try:
    checkpoint(lambda x: x.cuda().sum(), x, use_reentrant=False)
except RuntimeError as error:
    print(error)
checkpoint(lambda x: x.cuda().sum(), x, use_reentrant=False).backward()
print(x.grad.tolist())
"""
    refused, grad = scripts.ok(code).splitlines()
    assert (
        refused.startswith("PyTorch's device state was initialized in the forward pass")
        and grad == "[1.0, 1.0]"
    )


def test_the_module_is_one_as_others_are(scripts: Scripts):
    code = """
import inspect, pickle, torch
from unittest import mock
with mock.patch.object(torch.cuda, "_initialized", True):
    print(torch.cuda._initialized, end=" ")
print(torch.cuda._initialized, inspect.ismodule(torch.cuda), torch.cuda)
x = torch.ones(1, device="cuda")
with mock.patch("torch.cuda._initialized", False):
    print(torch.cuda._initialized, end=" ")
print(torch.cuda._initialized, pickle.loads(pickle.dumps(torch.cuda)) is torch.cuda)
"""
    before, after = scripts.ok(code).splitlines()
    assert before.startswith("True False True <module 'torch.cuda' from") and after == "True True True"


def test_a_script_that_hides_the_devices_has_none(scripts: Scripts):
    code = """
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
print(torch.cuda.is_available(), torch.cuda.is_bf16_supported(), torch.cuda.is_tf32_supported(), torch.cuda.get_arch_list())
for use in (torch.cuda.init, torch.cuda.current_device, lambda: torch.ones(1, device="cuda"), torch.ones(1).cuda):
    try:
        use()
    except RuntimeError as error:
        print(error)
print(torch.cuda.is_initialized(), torch.cuda.memory_allocated())
del os.environ["CUDA_VISIBLE_DEVICES"]
x = torch.ones(1, device="cuda")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized())
"""
    assert scripts.ok(code).splitlines() == [
        "False False False []",
        *["No CUDA GPUs are available"] * 4,
        "False 0",
        "True 2 True",
    ]


def test_a_process_of_torchruns_says_its_rank_for_its_only_device(scripts: Scripts):
    code = """
import torch
torch.cuda.set_device(3)
torch.cuda.manual_seed(1)
state = torch.cuda.get_rng_state(3)
print(torch.cuda.current_device(), torch.equal(torch.cuda.default_generators[3].get_state(), state))
torch.cuda.set_rng_state(state, "cuda:3")
"""
    said = scripts.ok(code, INNKEEPER_NODES="sim:8MiB,host:64MiB", LOCAL_RANK="3", LOCAL_WORLD_SIZE="4")
    assert said == "3 True\n"


def test_default_generators(scripts: Scripts):
    code = """
import torch
x = torch.ones(1, device="cuda")
first, second = torch.cuda.default_generators
print(first is torch.cuda.default_generators[-2], first.device, torch.cuda.default_generators[:1] == (first,))
torch.cuda.manual_seed(5)
print(first.initial_seed(), torch.equal(first.get_state(), torch.cuda.get_rng_state(0)))
print(torch.equal(first.get_state(), torch.cuda.get_rng_state(1)))
state = first.get_state()
drawn = torch.rand(4, device="cuda")
second.set_state(state)
print(torch.equal(drawn.cpu(), torch.rand(4, device="cuda:1").cpu()))
print(torch.cuda.default_generators[0].seed() == torch.cuda.initial_seed())
print(torch.cuda._get_generator(torch.device("cuda", 1)) is second, torch.cuda._get_rng_state_offset())
for wrong in (
    lambda: torch.cuda.default_generators[2],
    lambda: torch.cuda.get_rng_state(2),
    lambda: torch.cuda._set_rng_state_offset(4),
):
    try:
        wrong()
    except (IndexError, RuntimeError) as error:
        print(type(error).__name__, "Mersenne" in str(error))
"""
    assert scripts.ok(code).splitlines() == [
        "True cuda:0 True",
        "5 True",
        "False",
        "True",
        "True",
        "True 0",
        "IndexError False",
        "IndexError False",
        "RuntimeError True",
    ]


def test_an_experiment_has_generators_of_its_own(scripts: Scripts):
    code = """
import torch, innkeeper
x = torch.ones(1, device="cuda")
torch.manual_seed(1)
outside = torch.cuda.default_generators[0].get_state()
with innkeeper.experiment("a"):
    torch.cuda.default_generators[0].manual_seed(9)
    print(torch.equal(torch.rand(2, device="cuda").cpu(), torch.rand(2, generator=torch.Generator().manual_seed(9))))
print(torch.equal(outside, torch.cuda.default_generators[0].get_state()))
"""
    assert scripts.ok(code) == "True\nTrue\n"


def test_fork_rng_and_the_current_device(scripts: Scripts):
    code = """
import torch, warnings
warnings.simplefilter("error")
x = torch.ones(1, device="cuda"); torch.cuda.manual_seed(4)
torch.cuda.manual_seed_all(4)
for devices in ([0], [0, 1], [torch.device("cuda")], [1], ["cuda:1"]):
    with torch.random.fork_rng(devices): a = torch.rand(3, device="cuda")
    print(torch.equal(a.cpu(), torch.rand(3, generator=torch.Generator().manual_seed(4))), end=" ")
print(torch.cuda._exchange_device(1), torch.cuda.current_device(), torch.cuda._exchange_device(-1), torch.cuda._maybe_exchange_device(0))
with torch.cuda._DeviceGuard(1):
    print(torch.cuda.current_device(), end=" ")
print(torch.cuda.current_device())

@torch.compile(backend="eager", fullgraph=True)
def f(x):
    with torch.cuda.device(0):
        return x + int(torch.cuda.is_initialized())
print(f(x).item())
"""
    if torch.backends.cuda.is_built():
        pytest.skip("PyTorch's CUDA build keeps CUDA's own _exchange_device")
    assert scripts.ok(code).splitlines() == ["True True True True False 0 1 -1 1", "1 0", "2.0"]


def test_optimizers_scalers_and_loaders_take_it_for_cuda(scripts: Scripts):
    code = """
import torch
def trained(**options):
    w = torch.nn.Parameter(torch.linspace(-1, 1, 64).to(options.pop("device")))
    optimizer = torch.optim.Adam([w], **options)
    for _ in range(3):
        optimizer.zero_grad(); (w * w).sum().backward(); optimizer.step()
    return w.detach().cpu()
for options in ({}, {"foreach": True}, {"fused": True}, {"capturable": True}):
    plain = trained(device="cpu", **(options if "capturable" not in options else {}))
    print(torch.allclose(trained(device="cuda", **options), plain, atol=1e-6), end=" ")
print(torch.utils._foreach_utils._get_fused_kernels_supported_devices().count("cuda"))
print(torch.amp.GradScaler("cuda").is_enabled(), torch.cuda.is_current_stream_capturing())
data = torch.utils.data.TensorDataset(torch.ones(4, 2))
print([batch[0].is_pinned() for batch in torch.utils.data.DataLoader(data, 2, pin_memory=True, num_workers=1)])
"""
    assert scripts.ok(code).splitlines() == ["True True True True 1", "True False", "[True, True]"]


def test_it_is_initialized_before_a_mesh_chooses_a_device(scripts: Scripts):
    code = """
import torch, warnings
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.cuda.set_device(1)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    dist.init_device_mesh("cuda", (1,))
print(torch.cuda.current_device(), [w for w in said if "default device" in str(w.message)])
dist.destroy_process_group()
"""
    assert scripts.ok(code) == "1 []\n"


def test_every_answer_can_be_asked(scripts: Scripts):
    code = """
import inspect, torch
from innkeeper.cuda_compat import answers
for name in (*answers._SAME.split(), *answers._OWN.split()):
    answer = getattr(torch.cuda, name)
    if inspect.isfunction(answer) and not any(
        p.default is p.empty for p in inspect.signature(answer).parameters.values() if p.kind is not p.VAR_KEYWORD
    ):
        answer()
"""
    assert scripts.ok(code) == ""


def test_modules_that_took_a_function_before_have_the_answer(scripts: Scripts):
    code = """
import sys, torch, torch._dynamo, torch.distributed.tensor
from innkeeper.cuda_compat import answers
for module in [m for name, m in sys.modules.items() if name.startswith("torch.") and name != "torch.cuda.nccl"]:
    for name in (*answers._SAME.split(), *answers._OWN.split()):
        own = vars(module).get(name)
        if getattr(own, "__module__", None) in ("torch.cuda", "torch.cuda.memory", "torch.cuda.random") :
            print(module.__name__, name)
"""
    assert scripts.ok(code) == ""


def test_pytorch_reads_no_private_state_that_the_page_lacks():
    read = re.compile(r"torch\.cuda\.(_[A-Za-z]\w*|default_generators)\b")
    found: set[str] = set()
    directory = Path(torch.__file__).parent
    for file in directory.rglob("*.py"):
        parts = file.relative_to(directory).parts
        if parts[0] not in ("cuda", "testing", "_vendor") and file.name != "trace_rules.py":
            found |= set(read.findall(file.read_text(errors="replace")))
    named = set(re.findall(r"`(\w+)(?:\(\))?`", PAGE.read_text()))
    assert {"_is_in_bad_fork", "_lazy_init", "default_generators"} <= found
    assert found - named == set()
