"""`python -m innkeeper`: like Python itself, but cuda is managed. Unmappable features raise an error."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from managed_scripts import Scripts
from processes import RunProgram, StartProgram

# As with Python itself.

WHO = "import sys; print(__name__, sys.argv, sys.path[0], sys.flags.dev_mode, vars(sys.modules['__main__']) is vars())"


@pytest.mark.parametrize(
    "words",
    [
        ["who.py", "a b", "--", "-m", "x"],
        ["-c", WHO, "-x"],
        ["-m", "who", "--lr", "1"],
        ["-X", "dev", "-u", "who.py"],
        ["directory/"],
    ],
    ids=["script", "code", "module", "options", "directory"],
)
def test_the_script_is_what_it_is_to_python(scripts: Scripts, tmp_path: Path, words: list[str]):
    (tmp_path / "who.py").write_text(WHO)
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "__main__.py").write_text(WHO)
    plain, managed = scripts.python(*words), scripts.run(*words)
    assert plain.returncode == 0 and "__main__" in plain.stdout
    assert (managed.stdout, managed.stderr, managed.returncode) == (plain.stdout, plain.stderr, 0)


def test_options_before_the_module_are_kept(scripts: Scripts):
    done = scripts.python(
        "-X",
        "dev",
        "-um",
        "innkeeper",
        "-c",
        "import sys; print(sys.flags.dev_mode, sys.orig_argv[1:])",
    )
    assert done.stdout.startswith("True ['-X', 'dev', '-u', '-c',")


@pytest.mark.parametrize(
    "words", [["-I", "x.py"], ["-uE", "x.py"], ["-X", "dev", "-S", "-c", "1"]], ids=" ".join
)
def test_options_that_would_lose_the_mapping_are_refused(scripts: Scripts, words: list[str]):
    done = scripts.run(*words)
    assert done.returncode == 1 and "keep it from loading" in done.stderr


def test_tracebacks_are_the_scripts_alone(scripts: Scripts, tmp_path: Path):
    (tmp_path / "bad.py").write_text(
        "import torch\ndef f():\n    return torch.zeros(2).cuda().view(3)\nf()\n"
    )
    done = scripts.run("bad.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.split(", ")[1] for line in lines if line.startswith("  File")] == ["line 4", "line 3"]
    assert lines[-1].startswith("RuntimeError: shape '[3]' is invalid")


@pytest.mark.parametrize("code", ["sys.exit(7)", "sys.exit('why')", "raise SystemExit", "os._exit(9)", "1/0"])
def test_exit_codes(scripts: Scripts, code: str):
    words = ["-c", f"import os, sys; {code}"]
    plain, managed = scripts.python(*words), scripts.run(*words)
    assert (managed.returncode, managed.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", [[], ["-m", "innkeeper"]], ids=["python", "innkeeper"])
def test_signals_reach_the_script(
    start_program: StartProgram, tmp_path: Path, module: list[str], number: signal.Signals
):
    code = "import time, torch; torch.cuda.is_available(); print('ready', flush=True); time.sleep(60)"
    process = start_program(sys.executable, *module, "-c", code, cwd=tmp_path)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)


def test_stdin_is_a_script_too(run_python: RunProgram, tmp_path: Path):
    code = "import sys, torch\nprint(sys.argv, torch.zeros(1).cuda().is_cuda)\n"
    done = run_python("-m", "innkeeper", "-", "a", input=code, cwd=tmp_path)
    assert done.stdout == "['-', 'a'] True\n"


def test_without_torch_nothing_is_loaded(scripts: Scripts):
    assert (
        scripts.ok("import sys, json\nprint('innkeeper' in sys.modules, 'torch' in sys.modules)")
        == "False False\n"
    )


LOOK = "importlib.util; importlib.util.find_spec('torch')"  # transformers does this before it imports torch.


@pytest.mark.parametrize(
    "first", ["torch", "innkeeper", "torch.nn.functional as F", "innkeeper.report", LOOK]
)
def test_whichever_is_imported_first(scripts: Scripts, first: str):
    """A script that imported innkeeper before torch ended in a circular import."""
    code = f"import {first}\nimport torch, innkeeper\nx = torch.zeros(2).cuda()\nprint(x.is_cuda, innkeeper.where(x))"
    assert scripts.ok(code) == "True ['sim:0']\n"


def test_another_sitecustomize_still_runs(scripts: Scripts, tmp_path: Path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 5\n")
    code = "import torch\nprint(theirs, torch.cuda.is_available())"
    assert scripts.ok(code, PYTHONPATH=str(tmp_path / "site")) == "5 True\n"


CHILDREN = """
import multiprocessing, subprocess, sys
import torch
import torch.multiprocessing as mp

def work(rank, queue):
    x = torch.full((2,), float(rank), device="cuda")
    queue.put((rank, x.is_cuda, x.sum().item(), __name__, sys.argv[1:]))

if __name__ == "__main__":
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        started = [context.Process(target=work, args=(rank, queue)) for rank in range(2)]
        for process in started:
            process.start()
        print(sorted(queue.get(timeout=120) for _ in started))
        for process in started:
            process.join()
    code = "import torch; print(torch.zeros(1, device='cuda').device)"
    print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
"""


def test_children_are_told_too(scripts: Scripts, tmp_path: Path):
    done = scripts.run(scripts.write(CHILDREN), "--lr", "1")
    assert done.returncode == 0, done.stderr
    each = [(rank, True, 2.0 * rank, "__mp_main__", ["--lr", "1"]) for rank in range(2)]
    assert done.stdout == f"{each}\n{each}\ncuda:0\n\n"


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, i):
        assert not torch.utils.data.get_worker_info() is None
        return torch.tensor(float(i * i))

if __name__ == "__main__":
    warm = torch.ones(3).cuda()
    for context in ("fork", "spawn"):
        loader = DataLoader(Squares(), batch_size=4, num_workers=2, pin_memory=True, multiprocessing_context=context)
        print([batch.cuda(non_blocking=True).sum().item() for batch in loader])
"""


def test_workers_of_a_data_loader(scripts: Scripts):
    sums = [float(sum(i * i for i in range(at, at + 4))) for at in range(0, 16, 4)]
    assert scripts.ok(LOADER) == f"{sums}\n{sums}\n"


# Properties of cuda.


def test_how_the_device_shows_itself(scripts: Scripts):
    code = """
import copy, io, pickle, torch
x = torch.arange(4.0, device="cuda:0")
print(x.device, x.device.type, repr(x.device), x.device.index, x.get_device(), x.is_cuda, x.is_cpu)
print(x, x.type(), f"{torch.device('cuda')} {torch.device('cuda', 1)!r}")
print(x.device == torch.device("cuda:0"), torch.device("cuda") == torch.device("cuda", 0), x.to("cuda") is x)
print(x.cuda() is x, x.to(0) is x, x.to(torch.device("cuda")) is x, x.to(device="cuda", dtype=torch.half).dtype)
print(torch.zeros_like(x).device, x.new_ones(2).device, torch.tensor([1], device=0).device, torch.rand(1).is_cuda)
print(isinstance(x, torch.cuda.FloatTensor), torch.ones(1).type("torch.cuda.DoubleTensor").type())
print(pickle.loads(pickle.dumps(torch.device("cuda:1"))), copy.deepcopy(x).device, {torch.device("cuda:0"): 1}[x.device])
print(torch.nn.Linear(2, 2, device="cuda").cpu().cuda().weight.device, torch.Generator("cuda").device)
with torch.device("cuda"):
    print(torch.zeros(1).device, torch.nn.Linear(1, 1).weight.device)
torch.set_default_device("cuda:0")
print(torch.ones(1).device, torch.get_default_device())
torch.set_default_device(None)
torch.set_default_tensor_type(torch.cuda.DoubleTensor)
print(torch.ones(1).type())
torch.set_default_tensor_type(torch.FloatTensor)
print(torch.ones(1).type())
"""
    lines = scripts.ok(code).splitlines()
    assert lines == [
        "cuda:0 cuda device(type='cuda', index=0) 0 0 True False",
        "tensor([0., 1., 2., 3.], device='cuda:0') torch.cuda.FloatTensor cuda device(type='cuda', index=1)",
        "True False True",
        "True True True torch.float16",
        "cuda:0 cuda:0 cuda:0 False",
        "True torch.cuda.DoubleTensor",
        "cuda:1 cuda:0 1",
        "cuda:0 cuda:0",
        "cuda:0 cuda:0",
        "cuda:0 cuda:0",
        "torch.cuda.DoubleTensor",
        "torch.FloatTensor",
    ]


def test_a_checkpoint_says_cuda_and_is_read_anywhere(scripts: Scripts):
    save = "import torch\ntorch.save({'w': torch.ones(2).cuda(), 'd': torch.device('cuda')}, 'w.pt')"
    scripts.ok(save)
    plain = scripts.python(
        "-c",
        "import torch; w = torch.load('w.pt', map_location='cpu'); print(w['w'].device, w['d'])",
    )
    assert plain.stdout == "cpu cuda\n", plain.stderr
    load = """
import torch
for where in (None, "cuda", "cuda:0", torch.device("cuda"), "cpu", {"cuda:0": "cuda:1"}, lambda s, l: s.cuda(0)):
    print(torch.load("w.pt", map_location=where)["w"].device)
"""
    assert scripts.ok(load).split() == ["cuda:0"] * 4 + ["cpu", "cuda:1", "cuda:0"]


def test_what_torch_cuda_answers(scripts: Scripts):
    code = """
import torch
print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device())
x = torch.zeros(1 << 20, device="cuda:1")
print(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated("cuda:1"), torch.cuda.max_memory_allocated(1))
print([p.total_memory for p in map(torch.cuda.get_device_properties, range(2))], torch.cuda.get_device_name(1))
print(torch.cuda.get_device_capability(), torch.cuda.is_bf16_supported(), torch.cuda.mem_get_info(1)[1])
print(torch.cuda.memory_stats()["num_alloc_retries"], torch.cuda.nvtx.range_push("x"))
with torch.cuda.device(1):
    print(torch.cuda.current_device(), torch.cuda.memory_allocated() >> 20)
torch.cuda.synchronize("cuda:1"); torch.cuda.empty_cache(); torch.cuda.ipc_collect()
with torch.random.fork_rng(devices=[0, 1]):
    torch.cuda.manual_seed_all(3); a = torch.rand(3, device="cuda")
torch.cuda.manual_seed(3); print(torch.equal(a, torch.rand(3, device="cuda")), len(torch.cuda.get_rng_state_all()))
print(torch.cuda.can_device_access_peer(0, 1), torch.backends.cudnn.is_acceptable(x))
"""
    lines = scripts.ok(code).splitlines()
    assert lines[0] == "True 2 0"
    assert lines[1] == f"0 {4 << 20} {4 << 20}"
    assert lines[2] == f"[{256 << 20}, {256 << 20}] managed sim:1"
    assert lines[3] == f"(8, 0) True {256 << 20}"
    assert lines[4:] == ["0 0", "1 4", "True 2", "True False"]


def test_scripts_that_look_for_the_best_device_find_cuda(scripts: Scripts):
    code = """
import torch
def get_device():
    if torch.cuda.is_available():
        return torch.device("cuda")
    elif torch.backends.mps.is_available():
        return torch.device("mps")
    else:
        return torch.device("cpu")
print(get_device(), torch.ones(2, device=get_device()).device)
"""
    assert scripts.ok(code) == "cuda cuda:0\n"


def test_threads_are_told_too(scripts: Scripts):
    code = """
import threading, torch
def work(k):
    torch.cuda.set_device(k)
    with torch.autocast("cuda"):
        x = torch.ones(2, 2).cuda() @ torch.ones(2, 2, device="cuda")
    said.append((k, torch.cuda.current_device(), x.dtype))
said = []
for k in (0, 1):
    thread = threading.Thread(target=work, args=(k,)); thread.start(); thread.join()
print(said, torch.cuda.current_device())
"""
    assert scripts.ok(code) == "[(0, 0, torch.float16), (1, 1, torch.float16)] 0\n"


def test_autocast_by_all_its_names(scripts: Scripts):
    code = """
import functools, torch
x = torch.ones(2, 2, device="cuda")
brain = functools.partial(torch.amp.autocast, device_type=x.device.type, dtype=torch.bfloat16)
for make in (lambda: torch.autocast("cuda"), brain, torch.cuda.amp.autocast):
    with make():
        on = torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled(), torch.get_autocast_dtype("cuda")
        print((x @ x).dtype, *on)
print(torch.is_autocast_enabled(), (x @ x).dtype, torch.amp.is_autocast_available("cuda"))
scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
w = torch.nn.Parameter(torch.ones(2, device="cuda"))
optimizer = torch.optim.SGD([w], lr=1.0)
scaler.scale(w.sum()).backward(); scaler.step(optimizer); scaler.update()
print(w.tolist(), scaler.is_enabled(), scaler.get_scale())
"""
    half, brain = "torch.float16", "torch.bfloat16"
    assert scripts.ok(code).splitlines() == [
        f"{half} True True {half}",
        f"{brain} True True {brain}",
        f"{half} True True {half}",
        "False torch.float32 True",
        "[0.0, 0.0] True 4.0",
    ]


@pytest.mark.parametrize("flag", ["--no-cuda", "--disable-cuda"])
def test_scripts_that_are_told_not_to_do_not(scripts: Scripts, tmp_path: Path, flag: str):
    (tmp_path / "flag.py").write_text(
        "import argparse, torch, innkeeper\np = argparse.ArgumentParser()\n"
        "p.add_argument('--no-cuda', action='store_true'); p.add_argument('--disable-cuda', action='store_true')\n"
        "a = p.parse_args()\ncuda = not (a.no_cuda or a.disable_cuda) and torch.cuda.is_available()\n"
        "x = torch.ones(2, device='cuda' if cuda else 'cpu')\n(x + x).sum().item()\nprint(x.device, innkeeper._C.started())\n"
    )
    assert scripts.run("flag.py", flag).stdout == "cpu False\n"
    assert scripts.run("flag.py").stdout == "cuda:0 True\n"


# Features that cannot be mapped.


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "g = torch.cuda.CUDAGraph()",
            "torch.cuda.CUDAGraph cannot run on the managed device: a captured graph",
        ),
        ("with torch.cuda.graph(None): pass", "torch.cuda.graph cannot run on the managed device"),
        ("x.__cuda_array_interface__", "__cuda_array_interface__ cannot be given"),
        ("torch.cuda.cudart().cudaProfilerStart()", "torch.cuda.cudart cannot run on the managed device"),
        ("torch.cuda.temperature()", "torch.cuda.temperature cannot run on the managed device"),
        (
            "load_inline('a', '', cuda_sources='__global__ void f() {}')",
            "load_inline of CUDA sources cannot run",
        ),
        ("load('a', ['a.cpp', 'b.cu'])", "load of CUDA sources cannot run on the managed device"),
    ],
)
def test_what_cannot_be_mapped_says_so_with_the_scripts_line(scripts: Scripts, code: str, says: str):
    head = "import torch\nfrom torch.utils.cpp_extension import load, load_inline\nx = torch.ones(2).cuda()\n"
    done = scripts.run(scripts.write(f"{head}{code}\n"))
    last = done.stderr.splitlines()[-1]
    kind, _, said = last.partition(": ")
    assert done.returncode == 1 and said.startswith(f"script.py:4: {says}"), done.stderr
    assert kind == ("AttributeError" if "array_interface" in code else "RuntimeError")


def test_what_libraries_ask_while_they_are_imported(scripts: Scripts):
    code = "import torch\nx = torch.ones(2).cuda()\nprint(hasattr(x, '__cuda_array_interface__'))\n"
    assert scripts.ok(code + "print(torch._C._cuda_getCurrentRawStream(0))") == "False\n0\n"


def test_annotations_with_refused_names_are_no_use(scripts: Scripts):
    """transformers writes torch.cuda.CUDAGraph | None where it defines a function."""
    code = "import torch\ndef f(g: torch.cuda.CUDAGraph | None = None): return isinstance(g, torch.cuda.CUDAGraph)\nprint(f())"
    assert scripts.ok(code) == "False\n"


def test_an_address_is_told_once(scripts: Scripts, tmp_path: Path):
    code = "import torch\nx = torch.ones(2).cuda()\nprint(x.data_ptr() == x.view(2).data_ptr())\n"
    done = scripts.run(scripts.write(code))
    assert done.stdout == "True\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("innkeeper: script.py:3: data_ptr()") and "innkeeper.resident(x)" in line


def test_a_plain_import_changes_nothing(scripts: Scripts, tmp_path: Path):
    code = """
import torch
owners = (torch, torch.cuda, torch.device)
before = [dict(vars(owner)) for owner in owners]
import innkeeper, sys
same = all(vars(owner)[name] is value for owner, names in zip(owners, before) for name, value in names.items())
print(same, "innkeeper.cuda_compat" in sys.modules, torch.cuda.is_available(), torch.zeros(1, device="managed").device)
print(torch.Tensor.to is torch._C.TensorBase.to, torch.device("cuda").type, torch.device("managed:0"))
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    done = scripts.python("script.py")
    assert done.stdout == "True False False managed:0\nTrue cuda managed:0\n", done.stderr


def test_stats_tell_of_the_script(scripts: Scripts):
    code = "import torch, innkeeper, json\nx = torch.ones(4).cuda() + 1\nprint(json.dumps(innkeeper.stats()['ops'] > 0))"
    assert json.loads(scripts.ok(code)) is True


def test_compiled_functions_and_scripted_ones(scripts: Scripts, tmp_path: Path):
    code = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).cuda()
x = torch.randn(3, 4, device="cuda")
print(torch.equal(torch.compile(model)(x), model(x)))

@torch.compile(mode="reduce-overhead", fullgraph=True)
def f(x):
    return torch.zeros(3, 4, device="cuda") + x * 2
print(torch.equal(f(x), x * 2))

@torch.jit.script
def g(x: torch.Tensor):
    return torch.zeros(2, device=x.device) + x.sum()
print(torch.equal(g(x), x.sum().expand(2)), torch.equal(torch.jit.trace(model, x)(x), model(x)))
"""
    done = scripts.run(scripts.write(code))
    assert done.stdout == "True\nTrue\nTrue True\n", done.stderr
    assert done.stderr.count("script.py:5: torch.compile goes without Inductor") == 1


def test_what_is_compiled_and_never_called_is_not_spoken_of(scripts: Scripts, tmp_path: Path):
    (tmp_path / "library.py").write_text("import torch\n@torch.compile\ndef f(x):\n    return x * 2\n")
    done = scripts.run(scripts.write("import library\nprint('here')\n"))
    assert (done.stdout, done.stderr) == ("here\n", "")
