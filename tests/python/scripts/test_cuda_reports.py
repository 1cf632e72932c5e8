"""Reports to a program made for CUDA about its devices: memory, times, properties, profiles."""

from __future__ import annotations

from processes import RunProgram
from three_gpus import Run


def test_peaks_of_one_device_are_reset_alone(lines: Run):
    code = """
made = [torch.ones(1 << 20, device=f"cuda:{i}") for i in range(2)]
made.clear()
peaks = lambda: [torch.cuda.max_memory_allocated(i) >> 20 for i in range(2)]
print(peaks())
torch.cuda.reset_peak_memory_stats(1)
print(peaks())
torch.cuda.reset_peak_memory_stats("cuda:0")
print(peaks())
"""
    assert lines(code) == ["[4, 4]", "[4, 0]", "[0, 0]"]


def test_a_summary_is_the_device_s(lines: Run):
    code = """
held = torch.ones(1 << 20, device="cuda:1")
for device in (0, 1):
    first, *rest = torch.cuda.memory_summary(device, abbreviated=True).splitlines()
    print(first.split(";")[0], len(rest) > 0)
torch.cuda.memory._record_memory_history()
segments = torch.cuda.memory_snapshot()
print(isinstance(segments, list))
"""
    assert lines(code) == [
        "cuda:0: allocated 0 B (peak 0 B), reserved 0 B (peak 0 B), of its tensors 0 B (peak 0 B) True",
        "cuda:1: allocated 4.0 MiB (peak 4.0 MiB), reserved 4.0 MiB (peak 4.0 MiB), of its tensors 4.0 MiB "
        "(peak 4.0 MiB) True",
        "True",
    ]


def test_events_go_by_the_simulator_s_clock(lines: Run):
    code = """
with torch.cuda.device(1):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(1_410_000_000)
    end.record()
print(round(begin.elapsed_time(end), 2))
"""
    assert lines(code) == ["1000.0"]


def test_a_device_that_is_not_there_has_no_properties(lines: Run):
    code = """
cuda = torch.cuda
for ask in (cuda.get_device_properties, cuda.get_device_name, cuda.get_device_capability):
    raises(AssertionError, "Invalid device id", lambda: ask(3))
raises(AssertionError, "Invalid device id", lambda: cuda.can_device_access_peer(3, 0))
raises(AssertionError, "Invalid peer device id", lambda: cuda.can_device_access_peer(0, 3))
"""
    assert lines(code) == []


def test_the_profiler_leaves_cuda_s_part_out(run_python: RunProgram):
    code = """
import torch
from torch.profiler import ProfilerActivity, profile

net, x = torch.nn.Linear(8, 8).cuda(), torch.ones(4, 8, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
    net(x).sum().backward()
print(any("addmm" in row.key for row in found.key_averages()))
with torch.autograd.profiler.profile(use_device="cuda") as found:
    net(x)
print(len(found.function_events) > 0)
"""
    done = run_python("-m", "innkeeper", "-c", code, nodes="sim:2x64MiB,host:1GiB")
    assert done.stdout.splitlines() == ["True", "True"]
    said = [line for line in done.stderr.splitlines() if "profiler_st" not in line]
    assert said == [
        "innkeeper: <string>:6: the profiler shows the CPU's part: kernels of these devices run there"
    ]


def test_a_smaller_machine_has_its_first_device_current(run_python: RunProgram):
    code = """
import innkeeper
import torch

innkeeper.configure("sim:3x1MiB,host:64MiB", devices="each")
torch.managed.set_device(2)
innkeeper.configure("sim:1x1MiB,host:64MiB")
x = torch.ones(4, device="managed")
print(torch.managed.current_device(), x.device, (x + torch.ones(4).to("managed")).sum().item())
print(torch.managed.memory_allocated() > 0)
"""
    assert run_python("-c", code).stdout.splitlines() == ["0 managed:0 8.0", "True"]


def test_errors_name_cuda_s_types_and_back_ends(lines: Run):
    code = """
x, cpu, at = torch.ones(2, device="cuda"), torch.ones(2), torch.tensor([[0, 1]])
quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
tries = [
    lambda: x.type("torch.cuda.Foo"), lambda: x.type("torch.cuda.sparse.Foo"),
    x.pin_memory, quantized.pin_memory, lambda: torch.sparse_coo_tensor(at.cuda(), x, pin_memory=True),
    lambda: x.set_(cpu), lambda: x.set_(cpu.untyped_storage()), lambda: x.new(cpu.storage()),
    lambda: torch.sparse_coo_tensor(at, x), lambda: torch.sparse_coo_tensor(at.cuda(), cpu),
    lambda: torch.ones(2, 2).cuda().to_sparse_csr().new(2, 2), lambda: quantized.new(2),
]
for each in tries:
    try:
        each()
    except (RuntimeError, ValueError) as error:
        print(str(error).partition(".  ")[0])
"""
    pinned = "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned"
    moved = (
        'Attempted to set the storage of a tensor on device "cuda:0" to a storage on different device "cpu"'
    )
    assert lines(code) == [
        "invalid type: 'torch.cuda.Foo'",
        "invalid type: 'torch.cuda.sparse.Foo'",
        pinned,
        "cannot pin 'QuantizedCUDAQInt8Type' only dense CPU tensors can be pinned",
        pinned,
        moved,
        moved,
        moved,
        "backend of indices (CPU) must match backend of values (CUDA)",
        "backend of indices (CUDA) must match backend of values (CPU)",
        "Cannot map DispatchKey SparseCsrCUDA to a unique layout.",
        "new(): expected key in DispatchKeySet(CPU, CUDA, HIP, XLA, MPS, IPU, XPU, HPU, Lazy, PrivateUse1, "
        "Meta) but got: QuantizedCUDA",
    ]
