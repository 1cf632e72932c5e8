"""The rules of several GPUs that PyTorch's own tests check, on ``cuda:i`` of programs made for CUDA."""

from __future__ import annotations

from three_gpus import Run


def test_the_current_device_is_restored_and_is_a_threads_own(lines: Run):
    code = """
import threading

cuda, x, here = torch.cuda, torch.ones(2), torch.cuda.current_device
first = x.cuda()
with cuda.device(1):
    made = [x.cuda(), first + 1, first.cuda(), torch.ones_like(first), first.new_ones(2)]
    cuda.set_device(2)
    made.append(x.cuda())
    with cuda.device("cuda:1"), cuda.device_of(first):
        made.append(x.cuda())
    with cuda.device(-1), cuda.device(None), cuda.device_of(x):
        made.append(x.cuda())
print(at(made), here())
cuda.set_device(1)
seen = []
thread = threading.Thread(target=lambda: seen.extend([here(), x.cuda().get_device()]))
thread.start(), thread.join()
print(seen, here())
cuda.set_device(-1)
print(here(), x.to("cuda").device, x.to(2).device, torch.zeros(1, device=0).device, torch.device(2))
try:
    with cuda.device(2):
        raise KeyError
except KeyError:
    print(here())
raises(RuntimeError, "invalid device ordinal", lambda: cuda.set_device(3))
for call in (cuda.device, cuda.synchronize, cuda.current_stream, cuda.default_stream):
    raises(ValueError, "Expected a cuda device, but got: cpu", lambda: call(torch.device("cpu")))
"""
    assert lines(code) == ["[1, 0, 1, 0, 0, 2, 0, 2] 0", "[0, 0] 1", "1 cuda:1 cuda:2 cuda:0 cuda:2", "1"]


def test_copies_between_devices_are_new_and_keep_the_layout(lines: Run):
    code = """
x = torch.arange(24.0, device="cuda:1").view(1, 2, 3, 4)
print(x.cuda(1) is x, x.to("cuda:1") is x, x.to(x) is x, x.to("cuda:1", copy=True) is x)
moved = [x.cuda(0), x.to("cuda:2", torch.int32), torch.empty_like(x, device="cuda:0").copy_(x)]
moved.append(x.cpu().pin_memory().cuda(2, non_blocking=True))
x.zero_()
print(at(moved), [y.sum().item() for y in moved], moved[1].dtype)
for y in (x.to(memory_format=torch.channels_last), x.transpose(2, 3), x[:, :, ::2]):
    print(y.cuda(0).stride() == y.cpu().stride(), y.cuda(0).is_contiguous(memory_format=torch.channels_last))
storage = x.untyped_storage()
print(storage.device, storage.cuda(1).data_ptr() == storage.data_ptr(), storage.cuda(0).device)
print(x.storage().half().get_device(), x.storage().clone().get_device())
x[0, 0, 0] = torch.full((4,), 7.0, device="cuda:2")
print(x.sum().item(), at([torch.tensor(x), torch.asarray(x), torch.as_tensor(x, device="cuda:0")]))
"""
    assert lines(code) == [
        "True True True False",
        "[0, 2, 0, 2] [276.0, 276, 276.0, 276.0] torch.int32",
        *("True True", "True False", "True False"),
        *("cuda:1 True cuda:0", "1 1"),
        "28.0 [1, 1, 0]",
    ]


def test_a_file_says_its_devices_and_loading_may_choose_others(lines: Run):
    code = """
import io

def saved(what):
    file = io.BytesIO()
    torch.save(what, file)
    return file.getvalue()

def loaded(data, place=None):
    return torch.load(io.BytesIO(data), map_location=place)

both = saved([torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")])
places = [None, {"cuda:1": "cuda:2"}, "cuda:2", torch.device("cpu")]
places.append(lambda storage, where: storage.cuda(2) if where == "cuda:1" else None)
print([at(loaded(both, place)) for place in places])
raises(RuntimeError, "object on CUDA device 9", lambda: loaded(both.replace(b"cuda:1", b"cuda:9")))
net = nn.DataParallel(nn.Linear(2, 2).cuda())
net.load_state_dict({name: x.cuda(2) for name, x in loaded(saved(net.state_dict())).items()})
print(sorted(net.state_dict()), at(net.parameters()))
"""
    assert lines(code) == [
        "[[0, 1], [0, 2], [2, 2], [-1, -1], [0, 2]]",
        "['module.bias', 'module.weight'] [0, 0]",
    ]


def test_each_device_has_its_current_stream(lines: Run):
    code = """
cuda = torch.cuda
first, other, side = cuda.current_stream(), cuda.Stream(device=1), cuda.Stream(device=0)
before = cuda.current_stream(1)
print(first == cuda.default_stream(0), first == before, hash(first) == hash(cuda.default_stream("cuda:0")))
with cuda.stream(other):
    print(cuda.current_stream() == other, cuda.current_device(), cuda.current_stream(0) == first)
    with cuda.stream(side):
        x = torch.ones(2, device="cuda")
        print(cuda.current_stream() == side, cuda.current_stream(1) == other, x.device)
    with cuda.stream(None):
        print(cuda.current_device())
print(cuda.current_stream() == first, cuda.current_stream(1) == before, cuda.current_device())
event = cuda.Event(enable_timing=True)
with cuda.device(1):
    event.record()
later = other.record_event()
first.wait_event(event), side.wait_stream(other), later.synchronize(), x.record_stream(side)
print(event.device, later.device, event.query(), side.query())
with cuda.stream(side), cuda.stream(other):
    print(torch.zeros(2, device="cuda:1").copy_(x).tolist())
"""
    assert lines(code) == [
        "True False True",
        "True 1 True",
        "True True cuda:0",
        "1",
        "True True 0",
        "cuda:1 cuda:1 True True",
        "[1.0, 1.0]",
    ]


def test_each_device_has_its_random_state(lines: Run):
    code = """
cuda = torch.cuda

def draw():
    return [torch.rand(4, device=f"cuda:{i}").tolist() for i in range(3)]

states = cuda.get_rng_state_all()
first = draw()
print(len(states), draw() == first, cuda.set_rng_state_all(states), draw() == first)
cuda.set_rng_state(states[1], "cuda:1")
print([a == b for a, b in zip(first, draw())])
cuda.manual_seed_all(3)
print(len({str(x) for x in draw()}), [cuda.default_generators[i].initial_seed() for i in range(3)])
before = cuda.get_rng_state(0), cuda.get_rng_state(1)
with torch.random.fork_rng(devices=[1]):
    draw()
print(torch.equal(cuda.get_rng_state(0), before[0]), torch.equal(cuda.get_rng_state(1), before[1]))
with cuda.device(2):
    cuda.manual_seed(9)
print([cuda.default_generators[i].initial_seed() for i in range(3)])
own = torch.Generator("cuda:1").manual_seed(4)
state = own.get_state()
draws = [torch.randn(3, device="cuda:1", generator=own) for _ in range(2)]
own.set_state(state)
print(own.device, torch.equal(draws[0], torch.randn(3, device="cuda:1", generator=own)), torch.equal(*draws))
"""
    assert lines(code) == [
        "3 False None True",
        "[False, True, False]",
        "1 [3, 3, 3]",
        "False True",
        "[3, 3, 9]",
        "cuda:1 True False",
    ]


def test_gradients_return_to_the_device_that_they_came_from(lines: Run):
    code = """
from torch.utils.checkpoint import checkpoint

w, v = torch.ones(3, device="cuda:1", requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
at_0, at_2, seen = (w * 2).to("cuda:0"), (w * 3).to("cuda:2"), []
at_0.register_hook(lambda g: seen.append(g.get_device()))
((at_0 * v.cuda(0)).sum() + (at_2 * v.cuda(2)).sum().to("cuda:0")).backward()
print(w.grad.tolist(), w.grad.device, v.grad.tolist(), v.grad.device, seen)
(gradient,) = torch.autograd.grad((w.to("cuda:0") ** 3).sum().cuda(2), w, create_graph=True)
(gradient * 2).to("cuda:0").sum().backward()
print(gradient.device, w.grad.tolist())
w.grad = None
used, unused = torch.stack([w.to("cuda:0"), w.to("cuda:0")]).cuda(2).unbind()
used.sum().backward()
print(w.grad.tolist())
layers = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).to(f"cuda:{i}") for i in range(3)])

def run(x, *_):
    for i, layer in enumerate(layers):
        x = layer(x.to(f"cuda:{i}"))
    return x

def gradients(call):
    torch.manual_seed(1)
    layers.zero_grad()
    call(w).sum().backward()
    return [p.grad.tolist() for p in layers.parameters()]

marks = [torch.ones(1, device=f"cuda:{i}") for i in range(3)]  # the random states that are saved
print(gradients(run) == gradients(lambda x: checkpoint(run, x, *marks, use_reentrant=False)))
words = "expected device cuda:1 but got cuda:0"
raises(RuntimeError, words, lambda: (w * 2).backward(torch.ones(3, device="cuda:0")))
raises(RuntimeError, "device", lambda: setattr(w, "grad", torch.ones(3, device="cuda:0")))
"""
    assert lines(code) == [
        "[10.0, 10.0, 10.0] cuda:1 [5.0, 5.0, 5.0] cpu [0]",
        "cuda:1 [22.0, 22.0, 22.0]",
        "[1.0, 1.0, 1.0]",
        "True",
    ]


def test_optimizers_and_scalers_take_parameters_of_several_devices(lines: Run):
    code = """
def trained(devices, foreach):
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(3, 3) for _ in devices])
    for layer, device in zip(net, devices):
        layer.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=foreach)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=1)
    for step in range(3):
        x = torch.ones(2, 3)
        for layer, device in zip(net, devices):
            x = layer(x.to(device))
        optimizer.zero_grad()
        scaler.scale(x.pow(2).mean()).backward()
        if step == 1:
            net[-1].weight.grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1, foreach=foreach)
        scaler.step(optimizer)
        scaler.update()
    return [p.detach().cpu() for p in net.parameters()] + [norm.cpu()], scaler.get_scale()

alone = trained(["cuda:0"] * 3, None)
for foreach in (True, False):
    several = trained(["cuda:0", "cuda:1", "cuda:2"], foreach)
    print(all(torch.allclose(x, y) for x, y in zip(alone[0], several[0])), alone[1], several[1])
losses = [torch.ones(1, device=f"cuda:{i}") for i in range(3)]
one, (two, three) = torch.amp.GradScaler("cuda", init_scale=2.0).scale((losses[1], [losses[0], losses[2]]))
print(at([one, two, three]), one.item(), two.item(), three.item())
"""
    assert lines(code) == ["True 8.0 8.0", "True 8.0 8.0", "[1, 0, 2] 2.0 2.0 2.0"]


def test_memory_is_counted_for_each_device(lines: Run):
    code = """
cuda = torch.cuda
before = [cuda.memory_allocated(i) for i in range(3)]
x = torch.ones(1 << 18, device="cuda:1")
peak = cuda.max_memory_allocated("cuda:1")
print([cuda.memory_allocated(i) - n for i, n in enumerate(before)], peak >= before[1] + (1 << 20))
free, total = cuda.mem_get_info(torch.device("cuda:1"))
print(total - free >= 1 << 20, total == cuda.get_device_properties(1).total_memory)
del x
cuda.empty_cache()
cuda.reset_peak_memory_stats(1)
print(cuda.max_memory_allocated(1) == cuda.memory_allocated(1) == before[1], cuda.mem_get_info(1)[0] > free)
"""
    assert lines(code) == ["[0, 1048576, 0] True", "True True", "True True"]


def test_a_device_that_sleeps_is_busy_by_its_own_clock(lines: Run):
    code = """
import innkeeper

def busy(work):
    torch.cuda.synchronize()
    before = innkeeper.stats()["simulated_seconds"]
    work()
    torch.cuda.synchronize()
    return round(innkeeper.stats()["simulated_seconds"] - before, 3)

def both():
    torch.cuda._sleep(1_410_000_000)
    with torch.cuda.device(1):
        torch.cuda._sleep(4 * 1_410_000_000)  # of a clock that has not moved yet

print(busy(lambda: torch.cuda._sleep(1_410_000_000)), busy(both))
raises(RuntimeError, "busy for -", lambda: torch.cuda._sleep(-1))
"""
    assert lines(code) == ["1.0 3.0"]


def test_the_time_between_events_of_two_devices_is_refused(lines: Run):
    code = """
first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
first.record()
with torch.cuda.device(1):
    torch.cuda.current_stream().record_event(second)
raises(RuntimeError, "different devices, cuda:0 and cuda:1", lambda: first.elapsed_time(second))
"""
    assert lines(code) == []
