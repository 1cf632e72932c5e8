"""``cuda:i`` in programs made for CUDA is a device of its own, whose tensors prefer the i-th node that computes."""

# ruff: noqa: E501  (scripts in strings)
from __future__ import annotations

from pathlib import Path

from managed_scripts import AMPLE, SCRIPTS, Scripts
from processes import RunProgram


def test_cuda_1_is_the_second_node(scripts: Scripts):
    code = """
import torch, innkeeper
born = torch.zeros(64, 64, device="cuda:1")
sent = torch.zeros(64, 64).to("cuda:1")
moved = torch.zeros(64, 64, device="cuda:0").to("cuda:1")
module = torch.nn.Linear(64, 64).cuda(1)
with torch.cuda.device(1):
    inside = torch.zeros(64, 64, device="cuda") * 1
with torch.device("cuda:1"):
    default = torch.ones(64, 64)
print([innkeeper.where(x)[0] for x in (born, sent, moved, module.weight.data, inside, default, born @ sent)])
print(innkeeper.where(torch.zeros(4, device="cuda")), innkeeper.where(torch.zeros(4, device="cuda:0")))
torch.cuda.set_device("cuda:1")
print(innkeeper.where(torch.zeros(4).cuda()), torch.cuda.current_device())
try:
    torch.zeros(1, device="cuda:2")
except RuntimeError as error:
    print(error)
"""
    lines = scripts.ok(code).splitlines()
    assert lines[0] == str(["sim:1"] * 7)
    assert lines[1] == "['sim:0'] ['sim:0']"
    assert lines[2] == "['sim:1'] 1"
    assert lines[3].startswith("CUDA error: invalid device ordinal: cuda:2, and there are 2 devices")


def test_the_sample_of_pytorchs_text_on_cuda_semantics(scripts: Scripts):
    code = """
import torch, innkeeper
x = torch.cuda.FloatTensor(1)
y = torch.FloatTensor(1).cuda()
with torch.cuda.device(1):
    a = torch.cuda.FloatTensor(1)
    b = torch.FloatTensor(1).cuda()
    c = a + b
    z = x + y
    d = torch.randn(2).cuda(2)
print([innkeeper.where(t.fill_(0))[0] for t in (x, y, a, b, c, z, d)], innkeeper.where(torch.ones(1).cuda()))
dtype = torch.cuda.FloatTensor
for x in torch.utils.data.DataLoader(torch.arange(2)):
    x = torch.autograd.Variable(x.type(dtype))
    print(x.type(), x.device, x.tolist())
"""
    lines = scripts.ok(code, INNKEEPER_NODES=AMPLE.format(3)).splitlines()
    assert lines[0] == "['sim:0', 'sim:0', 'sim:1', 'sim:1', 'sim:1', 'sim:0', 'sim:2'] ['sim:0']"
    assert lines[1:] == [f"torch.cuda.FloatTensor cuda:0 [{n}.0]" for n in range(2)]


def test_data_parallel_takes_cudas_numbers(scripts: Scripts):
    code = """
import torch, innkeeper
torch.manual_seed(0)
model = torch.nn.Linear(8, 4).to("cuda:0")
x = torch.randn(8, 8, device="cuda")
parts = torch.cat([model(part) for part in x.chunk(4)])
parallel = torch.nn.DataParallel(model, device_ids=[0, 1, 2, 3])
innkeeper.manager().reset_stats()
print(torch.equal(parallel(x), parts))
print([name for name, node in innkeeper.stats()["nodes"].items() if node["ops"] > 0])
"""
    lines = scripts.ok(code, INNKEEPER_NODES=AMPLE.format(4)).splitlines()
    assert lines == ["True", "['sim:0', 'sim:1', 'sim:2', 'sim:3']"]


def test_a_thread_that_has_not_chosen_is_at_cuda_0(scripts: Scripts):
    """After the first "cuda:0" a tensor without an index went to the emptiest node, which is sim:1 then."""
    code = "import torch, innkeeper\na = torch.zeros(1 << 16, device='cuda:0')\n"
    code += "print(innkeeper.where(a), innkeeper.where(torch.zeros(4, device='cuda')))"
    assert scripts.ok(code) == "['sim:0'] ['sim:0']\n"


def test_what_is_sent_is_a_copy_as_between_gpus(scripts: Scripts):
    """A tensor that an operator made at cuda:1 was given back itself by .to("cuda:0"), and changed with it."""
    code = """
import torch
a = torch.arange(3.0, device="cuda:1") * 1
b = a.to("cuda:0")
b += 1
print(a.tolist(), b.tolist())
c = torch.ones(2, device="cuda:1")
print(c.to("cuda:1") is c, b.to("cuda:0") is b)
w = torch.ones(2, device="cuda:0", requires_grad=True)
(w * 2).to("cuda:1").pow(2).sum().backward()
print(w.grad.tolist())
"""
    assert scripts.ok(code) == "[0.0, 1.0, 2.0] [1.0, 2.0, 3.0]\nTrue True\n[8.0, 8.0]\n"


NAMED = """
made = [torch.zeros(1, device="cuda"), torch.ones(1).cuda(), torch.zeros(1, device="cuda:0")]
print(*(innkeeper.where(x) for x in made))
"""


def test_a_script_may_hide_or_number_its_devices(scripts: Scripts, tmp_path: Path):
    code = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = {!r}\nimport torch, innkeeper\nprint(torch.cuda.is_available(), torch.cuda.device_count())\n"
    script = tmp_path / "script.py"
    script.write_text(code.format("-1"))
    hidden = scripts.run("script.py")
    assert hidden.stdout == "False 0\n" and hidden.stderr.startswith(
        "innkeeper: script.py:4: CUDA_VISIBLE_DEVICES='-1' hides"
    )
    one = code.format("1") + NAMED
    assert scripts.ok(one) == "True 1\n['sim:1'] ['sim:1'] ['sim:1']\n"
    swapped = code.format("1,0") + NAMED + "print(innkeeper.where(torch.zeros(1, device='cuda:1')))\n"
    assert scripts.ok(swapped) == "True 2\n['sim:1'] ['sim:1'] ['sim:1']\n['sim:0']\n"


LIKE = """
import torch, innkeeper
a, b = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
c = b * 2
made = [torch.zeros_like(b), torch.ones_like(c), b.new(3).fill_(1), c.new_ones(3), torch.rand_like(b)]
print([innkeeper.where(x)[0] for x in made])
with torch.cuda.device(1):
    print(innkeeper.where(torch.zeros_like(a)), innkeeper.where(torch.zeros(3, device="cuda")))
print(torch.zeros_like(torch.ones(3)).device, b.new_ones(3, device="cpu").device)
"""


def test_what_is_made_like_a_tensor_is_made_where_that_is(scripts: Scripts):
    said = scripts.ok(LIKE, INNKEEPER_NODES="sim:2x1MiB,host:64MiB").splitlines()
    assert said == [str(["sim:1"] * 5), "['sim:0'] ['sim:1']", "cpu cpu"]


THERE = """
import torch, innkeeper
a, b = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
torch.save(a, "a.pt")
places = ["cuda:1", torch.device("cuda:1"), {"cuda:0": "cuda:1"}, lambda storage, _: storage.cuda(1)]
sent = [torch.load("a.pt", map_location=place) for place in places] + [torch.ones(3).type_as(b), a.int().type_as(b)]
print([innkeeper.where(x)[0] for x in sent], innkeeper.where(torch.load("a.pt")))
with torch.cuda.device_of(b):
    print(torch.cuda.current_device(), innkeeper.where(torch.ones(3, device="cuda")))
with torch.cuda.device_of(torch.ones(3)):
    print(torch.cuda.current_device())
"""


def test_what_is_read_or_made_for_a_device_is_there(scripts: Scripts):
    said = scripts.ok(THERE, INNKEEPER_NODES="sim:2x1MiB,host:64MiB").splitlines()
    assert said == [f"{['sim:1'] * 6} ['sim:0']", "1 ['sim:1']", "0"]


def test_each_device_has_a_generator_streams_and_events(scripts: Scripts):
    code = """
import torch
devices = ["cuda", "cuda:0", "cuda:1", torch.device("cuda", 1)]
print(sorted({str(torch.Generator(device).manual_seed(3).device) for device in devices}))
numbers = [torch.rand(2, device=device, generator=torch.Generator(device).manual_seed(3)) for device in devices]
print(all(torch.equal(x.cpu(), numbers[0].cpu()) for x in numbers))
torch.manual_seed(5)
print(torch.equal(torch.rand(2, device="cuda:0").cpu(), torch.rand(2, device="cuda:1").cpu()))
torch.cuda.manual_seed(6)
print(torch.equal(torch.rand(2, device="cuda:0").cpu(), torch.rand(2, device="cuda:1").cpu()))
print(torch.Stream("cuda:1").device, torch.cuda.Stream(1).device_index, torch.cuda.current_stream(1).device)
with torch.cuda.stream(torch.cuda.Stream(1)):
    print(torch.cuda.current_device(), torch.ones(1, device="cuda").device)
print(torch.cuda.current_device())
for stream in (torch.Stream("cuda:1"), torch.cuda.Stream(1), torch.cuda.Stream("cuda:1")):
    with stream:
        torch.Event("cuda:1").record()
torch.cuda.synchronize(1)
"""
    assert scripts.ok(code).splitlines() == [
        "['cuda:0', 'cuda:1']",
        *("True", "True", "False"),
        *("cuda:1 1 cuda:1", "1 cuda:1", "0"),
    ]


RANK = """
import torch
a = torch.ones(3, device="cuda")
torch.save(a, "a.pt")
places = ["cuda:1", torch.device("cuda:1"), {"cuda:0": "cuda:1"}, lambda storage, _: storage.cuda(1), None]
print([str(torch.load("a.pt", map_location=place).device) for place in places])
try:
    torch.load("a.pt", map_location="cuda:2")
except RuntimeError as error:
    print("device 2" in str(error))
"""


def test_a_process_of_torchruns_loads_to_the_number_that_it_has(scripts: Scripts):
    said = scripts.ok(RANK, INNKEEPER_NODES="sim:1x1MiB,host:64MiB", LOCAL_RANK="1").splitlines()
    assert said == [str(["cuda:1"] * 4 + ["cuda:0"]), "True"]


def test_the_environment_may_hide_simulated_gpus_as_it_does_real_ones(scripts: Scripts):
    code = "import torch\nprint(torch.cuda.is_available(), torch.cuda.device_count())"

    def seen(listed: str, nodes: str = "sim:2x1MiB,host:64MiB") -> str:
        # Output of the script alone: a note names the variable that hides the devices.
        return scripts.ok(code, CUDA_VISIBLE_DEVICES=listed, INNKEEPER_NODES=nodes).strip()

    for hides in ("", "-1", "7", "GPU-5ebe9f43", "1,1"):
        assert seen(hides) == "False 0", hides
        assert seen(hides, "auto") == "False 0", hides
    assert [seen("1"), seen("1,0"), seen("0,7,1"), seen("0", "host:64MiB")] == [
        "True 1",
        "True 2",
        "True 1",
        "True 1",
    ]


SENT = """
import torch, torch.multiprocessing as mp

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.ones(2, device="cuda") * i

def put(queue, ended):
    queue.put([torch.arange(3.0, device="cuda"), torch.nn.Parameter(torch.ones(2, device="cuda"))])
    ended.wait(30)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn")
    print([batch.sum().item() for batch in loader], next(iter(loader)).device)
    context = mp.get_context("spawn")
    queue, ended = context.Queue(), context.Event()
    process = context.Process(target=put, args=(queue, ended))
    process.start()
    got = queue.get(timeout=60)
    ended.set()
    process.join()
    print(got[0].tolist(), type(got[1]).__name__, got[1].requires_grad, got[1].device)
"""


def test_tensors_are_sent_to_other_processes_as_copies(scripts: Scripts):
    said = scripts.ok(SENT, INNKEEPER_NODES="sim:1x1MiB,host:64MiB").splitlines()
    assert said == ["[2.0, 10.0] cuda:0", "[0.0, 1.0, 2.0] Parameter True cuda:0"]


def test_fake_tensors_have_no_preferred_node(scripts: Scripts):
    code = """
import torch
from torch._subclasses import FakeTensorMode
real = torch.ones(2, device="cuda:1")
with FakeTensorMode() as mode:
    fake = mode.from_tensor(real)
    print(torch.empty_like(fake).shape, torch.zeros(3, device="cuda:1").shape, fake.new_ones(4).shape)
"""
    assert scripts.ok(code) == "torch.Size([2]) torch.Size([3]) torch.Size([4])\n"


def test_copies_between_tight_devices_in_both_directions_never_wait_for_each_other(scripts: Scripts):
    """Each copy needs free space on one device while it reads the other; a wait with a pin was a deadlock."""
    code = """
import threading, torch
shape = (256, 256)
ways = [lambda x: x, lambda x: x.t(), lambda x: x[:, ::2], lambda x: x.double(), lambda x: x.half()]
wrong = []

def storm(mine, other):
    torch.cuda.set_device(mine)
    for n in range(300):
        way = ways[n % len(ways)]
        x = torch.full(shape, float(n % 7), device=f"cuda:{mine}")
        y = way(x).to(f"cuda:{other}")
        z = torch.empty_like(way(x), dtype=torch.float32).copy_(y)
        if y.get_device() != other or z.get_device() != mine or z.min() != n % 7 or z.max() != n % 7:
            wrong.append((mine, n))

threads = [threading.Thread(target=storm, args=(i % 2, 1 - i % 2)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(wrong)
"""
    assert scripts.ok(code, INNKEEPER_NODES="sim:2x1536KiB,host:256MiB") == "[]\n"


def test_what_a_layout_is_made_of_is_on_the_tensors_device(scripts: Scripts):
    """LibTorch's kernels for out-of-tree devices make their parts on the current device, not the given one."""
    code = """
import torch, warnings
warnings.simplefilter("ignore")
i, v = torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([3.0, 4.0, 5.0])
coo = torch.sparse_coo_tensor(i, v, (3, 3))
at_1 = coo.to("cuda:1")
made = [at_1, coo.to("cuda:0").to("cuda:1"), at_1.clone(), torch.empty_like(at_1), at_1.coalesce(), at_1 + at_1]
made += [torch.zeros(3, 3, layout=torch.sparse_coo, device="cuda:1"), torch.eye(3).to_sparse_csr().to("cuda:1")]
made += [torch.quantize_per_tensor(v, 0.1, 0, torch.qint8).to("cuda:0").to("cuda:1")]
made += [torch.nested.nested_tensor([v, v[:2]]).to("cuda:0").to("cuda:1"), torch.tril_indices(3, 3, device="cuda:1")]
made += [torch.full((5 << 20,), 1.0, device="cuda:1") * 2]  # larger than the device: cut into slices
print(sorted({str(x.device) for x in made}), at_1.coalesce().indices().device, at_1.to_dense().sum().item())
net = torch.nn.Embedding(4, 2, sparse=True).to("cuda:1")
net(torch.tensor([1, 2], device="cuda:1")).sum().backward()
print(net.weight.grad.device, torch.nn.LSTM(2, 2).to("cuda:1")(torch.ones(1, 1, 2, device="cuda:1"))[0].device)
"""
    nodes = "sim:2x16MiB,host:1GiB"
    assert scripts.ok(code, INNKEEPER_NODES=nodes).splitlines() == ["['cuda:1'] cuda:1 12.0", "cuda:1 cuda:1"]


def test_tensors_of_two_devices_do_not_mix(scripts: Scripts):
    code = """
import torch
a, b = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
index = torch.tensor([1], device="cuda:1")
for what in (
    lambda: a + b, lambda: torch.cat([a, b]), lambda: torch.add(a, 1, out=b), lambda: a[index], lambda: a @ b,
    lambda: a.index_put_((index,), a[:1]), lambda: torch.nn.functional.linear(a, b.expand(2, 3)),
    lambda: torch.empty(0, device="cuda:0").set_(b), lambda: torch.where(a > 0, a, b), lambda: a.masked_fill_(b > 0, 1.0),
):
    try:
        what()
        print("mixed")
    except RuntimeError as error:
        print("cuda:0" in str(error) and "cuda:1" in str(error) and "managed" not in str(error), end=" ")
print()
scalar = torch.tensor(2.0, device="cuda:1")
print((a * torch.tensor(2.0)).device, a.copy_(b).device, torch._foreach_add([a, b], 1.0)[1].device, end=" ")
try:
    a * scalar
except RuntimeError as error:
    print("cuda:1 and cuda:0!" in str(error) or "cuda:0 and cuda:1!" in str(error))
"""
    assert scripts.ok(code).splitlines() == [" ".join(["True"] * 10) + " ", "cuda:0 cuda:0 cuda:1 True"]


def test_an_experiment_and_on_choose_the_device(scripts: Scripts):
    code = """
import torch, innkeeper
torch.cuda.set_device(1)  # before this thread has had any home
with innkeeper.experiment("zero"):
    print(torch.cuda.current_device(), end=" ")
print(torch.cuda.current_device())
torch.cuda.set_device(0)
with innkeeper.on("sim:1"):
    x = torch.ones(2, device="cuda")
    print(x.device, torch.cuda.current_device(), torch.ones(1).cuda().device)
print(torch.cuda.current_device(), torch.ones(2, device="cuda").device)
torch.cuda.set_device(1)
with innkeeper.on("sim:0"):
    print(torch.cuda.current_device(), end=" ")
print(torch.cuda.current_device())
more = torch.ones(1000, device="cuda")  # the experiment goes to the other
with innkeeper.experiment("one"):
    y = torch.ones(2, device="cuda")
    print(y.get_device(), torch.cuda.current_device())
print(torch.cuda.current_device())
"""
    assert scripts.ok(code).splitlines() == ["0 1", "cuda:1 1 cuda:1", "0 cuda:0", "0 1", "0 0", "1"]


def test_a_tensor_sent_to_another_process_arrives_on_its_device(scripts: Scripts):
    code = """
import torch, torch.multiprocessing as mp

def work(queue, back):
    x = queue.get()
    back.put((str(x.device), x.tolist()))

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, back = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=work, args=(queue, back))
    child.start()
    queue.put(torch.arange(3.0, device="cuda:1"))
    print(back.get())
    child.join()
"""
    assert scripts.ok(code).splitlines()[-1] == "('cuda:1', [0.0, 1.0, 2.0])"


def test_memory_counters_of_a_device(scripts: Scripts):
    """Counters of the node and of the device, since the engine may keep a device's tensors elsewhere."""
    code = """
import torch
MIB = 1 << 20

def counted(i):
    stats = torch.cuda.memory_stats(i)
    requested = stats["requested_bytes.all.current"]
    return tuple(n // MIB for n in (torch.cuda.memory_allocated(i), torch.cuda.memory_reserved(i), requested))

x = torch.ones(MIB, device="cuda:1")
print(counted(0), counted(1), torch.cuda.max_memory_allocated(1) // MIB, torch.cuda.mem_get_info(1)[1] // MIB)
del x
print(counted(1))
torch.cuda.empty_cache()
print(counted(1), torch.cuda.memory_stats(1)["requested_bytes.all.peak"] // MIB)
torch.cuda.reset_peak_memory_stats(1)
print(torch.cuda.max_memory_allocated(1), torch.cuda.memory_stats(1)["requested_bytes.all.peak"])
many = [torch.ones(MIB, device="cuda:1") for _ in range(6)]
allocated, reserved, requested = counted(1)
print(requested, 0 < allocated <= reserved <= 16, torch.accelerator.memory_reserved(1) // MIB == reserved)
many[0].resize_(2 * MIB)
print(counted(1)[2])
del many
print(counted(1)[2])
"""
    nodes = "sim:2x16MiB,host:256MiB"
    assert scripts.ok(code, INNKEEPER_NODES=nodes).splitlines() == [
        *("(0, 0, 0) (4, 4, 4) 4 16", "(0, 4, 0)", "(0, 0, 0) 4", "0 0"),
        *("24 True True", "28", "0"),
    ]


def test_a_device_for_each_node_by_configure(run_python: RunProgram):
    code = """
import innkeeper, torch
innkeeper.configure("sim:2x4MiB,host:64MiB", devices="each")
a, b = torch.ones(2, device="managed:1"), torch.ones(2, device="managed")
print(a.device, b.device, torch.managed.device_count(), innkeeper.where(a), [str(p.device) for p in
      torch.nn.parallel.replicate(torch.nn.Linear(2, 2).to("managed"), [0, 1])[1]._former_parameters.values()])
net = torch.nn.DataParallel(torch.nn.Linear(2, 2).to("managed:0"))
print(net.device_ids, net(torch.ones(4, 2)).device)
for wrong in (lambda: a + b, lambda: torch.ones(1, device="managed:2"), lambda: innkeeper.configure(devices="one"),
              lambda: innkeeper.configure(devices="two")):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, str(error)[:59])
"""
    done = run_python("-c", code)
    assert done.stdout.splitlines() == [
        "managed:1 managed:0 2 ['sim:1'] ['managed:1', 'managed:1']",
        "[0, 1] managed:0",
        "RuntimeError Expected all tensors to be on the same device, but found at",
        "RuntimeError CUDA error: invalid device ordinal: managed:2, and there ar",
        'ValueError devices is "one" or "each", and "each" stays for the rest o',
        'ValueError devices is "one" or "each", and "each" stays for the rest o',
    ], done.stderr


def test_sums_over_devices_are_made_without_a_warning(scripts: Scripts):
    """PyTorch calls its own module of NCCL for it, another object than the one in ``torch.cuda``."""
    code = """
import torch, warnings
warnings.simplefilter("error")
print(torch.cuda.comm.reduce_add([torch.full((2,), 1.0 + i, device=f"cuda:{i}") for i in range(2)]))
"""
    assert scripts.ok(code) == "tensor([3., 3.], device='cuda:0')\n"


def test_a_process_of_two_gpus_in_a_group(scripts: Scripts):
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = scripts.run(*torchrun, str(SCRIPTS / "ddp_two_gpus.py"), INNKEEPER_NODES="sim:4x8MiB,host:256MiB")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"{rank} True {[f'cuda:{2 * rank + layer}' for layer in (0, 0, 1, 1)]}" for rank in (0, 1)
    ]


def test_operators_draw_from_the_stream_of_their_tensors_device(scripts: Scripts):
    """Dropout of a nested tensor drew from the first device's stream, for a tensor on any device."""
    code = """
import torch, warnings
warnings.simplefilter("ignore")
nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]).to("cuda:1")
dense, csr = torch.ones(3, device="cuda:1"), torch.eye(3).to_sparse_csr().to("cuda:1")
dropout = torch.nn.functional.dropout
for draw in (lambda: dropout(nested), lambda: dropout(dense), lambda: dense.normal_(), lambda: torch.randn_like(csr)):
    before = torch.cuda.get_rng_state_all()
    draw()
    print([torch.equal(a, b) for a, b in zip(before, torch.cuda.get_rng_state_all())])
"""
    assert scripts.ok(code).splitlines() == ["[True, False]"] * 4
