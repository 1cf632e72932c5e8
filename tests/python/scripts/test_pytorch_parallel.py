"""``torch.cuda.comm`` and ``nn.DataParallel`` over ``cuda:i``: rules that PyTorch's own tests check."""

from __future__ import annotations

from three_gpus import Run


def test_broadcast_keeps_the_tensor_where_it_is_and_copies_to_the_others(lines: Run):
    code = """
for x in (torch.randn(3, 4), torch.randn(3, 4, device="cuda:1"), torch.randn(4, 3, device="cuda:1").t()):
    sent = comm.broadcast(x, ["cuda:0", torch.device("cuda:1"), 2])
    same = all(torch.equal(y.cpu(), x.cpu()) for y in sent)
    print(at(sent), same, sent[1] is x, sent[2].stride() == x.stride())
    out = [torch.empty(3, 4, device="cuda:2"), torch.zeros(3, 4, device="cuda:0")]
    returned = comm.broadcast(x, out=out)
    print(all(y is z and torch.equal(y.cpu(), x.cpu()) for y, z in zip(returned, out)))
raises(RuntimeError, "Exactly one of 'devices' and 'out'", lambda: comm.broadcast(x, [0], out=out))
raises(RuntimeError, "Exactly one of 'devices' and 'out'", lambda: comm.broadcast(x))
raises(RuntimeError, "at index 1 has shape [4]", lambda: comm.broadcast(x, out=[out[0], out[1][0]]))
raises(RuntimeError, "invalid device ordinal", lambda: comm.broadcast(x, [0, 3]))
"""
    said = lines(code)
    assert said[0::2] == [f"[0, 1, 2] True {same} True" for same in (False, True, True)]
    assert said[1::2] == ["True"] * 3


def test_coalesced_copies_do_not_share_version_counters(lines: Run):
    code = """
sparse = torch.sparse_coo_tensor([[0, 1], [1, 0]], [2.0, 3.0], (2, 2)).to("cuda:1")
numbers, none = torch.arange(4, device="cuda:1"), torch.ones(0, device="cuda:1")
tensors = [torch.randn(3, device="cuda:1"), sparse, numbers, none]
here, there = comm.broadcast_coalesced(tensors, [1, 0])
types = [x.dtype for x in there] == [x.dtype for x in tensors]
print(all(x is y for x, y in zip(here, tensors)), at(there), types)
print(all(torch.equal(x.to_dense().cpu(), y.to_dense().cpu()) for x, y in zip(here, there)))
before = [y._version for y in there]
there[0].zero_()
print([y._version - v for y, v in zip(there, before)], bool(here[0].abs().sum() > 0))
raises(RuntimeError, "be on devices[0]: 0", lambda: comm.broadcast_coalesced(tensors, [0, 1]))
"""
    assert lines(code) == ["True [0, 0, 0, 0] True", "True", "[1, 0, 0, 0] True"]


def test_reduce_add_sums_on_its_destination(lines: Run):
    code = """
x = [torch.full((2, 2), 10.0**i, device=f"cuda:{i}") for i in range(3)]
for where in (None, 2, torch.device("cuda:1")):
    total = comm.reduce_add(x, where)
    print(total.get_device(), total[0, 0].item(), [y[0, 0].item() for y in x])
eye = torch.eye(2).to_sparse()
total, plain = comm.reduce_add_coalesced([[eye.cuda(i), x[i]] for i in (0, 1)], destination=1)
print(total.get_device(), total.to_dense().tolist(), plain.get_device(), plain[0, 0].item())
raises(RuntimeError, "destination to be on the same GPU with one of", lambda: comm.reduce_add(x[:2], 2))
raises(ValueError, "got 1x2, but expected 2x2", lambda: comm.reduce_add([x[0], x[1][:1]]))
raises(AssertionError, "input 0 is on CPU", lambda: comm.reduce_add([x[0].cpu(), x[1]]))
"""
    sums = [f"{where} 111.0 [1.0, 10.0, 100.0]" for where in (0, 2, 1)]
    assert lines(code) == [*sums, "1 [[2.0, 0.0], [0.0, 2.0]] 1 11.0"]


def test_scatter_cuts_along_a_dimension_and_does_not_copy_the_own_part(lines: Run):
    code = """
whole = torch.arange(24.0).view(6, 4)
for x in (whole, whole.cuda(0)):
    for sizes, dim in ((None, 0), (None, -1), ((1, 3, 2), 0), ((2, 1, 1), 1)):
        parts = comm.scatter(x, (0, 1, 2), sizes, dim)
        out = [torch.empty_like(part) for part in parts]
        wanted = whole.chunk(3, dim) if sizes is None else whole.split(sizes, dim)
        filled = comm.scatter(x, dim=dim, out=out)
        good = all(torch.equal(y.cpu(), z) for made in (parts, out) for y, z in zip(made, wanted))
        print(at(parts), good, all(y is z for y, z in zip(filled, out)), parts[0].data_ptr() == x.data_ptr())
print(len(comm.scatter(whole[:2], (0, 1, 2))))
nhwc = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
print([y.is_contiguous(memory_format=torch.channels_last) for y in comm.scatter(nhwc, (0, 1))])
raises(RuntimeError, "at least one device to scatter to", lambda: comm.scatter(whole, ()))
raises(RuntimeError, "at least one output tensor", lambda: comm.scatter(whole, out=[]))
raises(RuntimeError, "chunk_sizes to be of same length", lambda: comm.scatter(whole, (0, 1), (6,)))
raises(RuntimeError, "to sum exactly to 6", lambda: comm.scatter(whole, (0, 1), (1, 2)))
raises(RuntimeError, "'devices' must not be", lambda: comm.scatter(whole, (0, 1), out=out))
raises(RuntimeError, "'chunk_sizes' must not be", lambda: comm.scatter(whole, chunk_sizes=(3, 3), out=out))
both = [whole.cuda(0), whole.cuda(1)]
raises(RuntimeError, "tensors along scatter dim 0", lambda: comm.scatter(whole, out=both))
raises(RuntimeError, "tensors along scatter dim 1", lambda: comm.scatter(whole, dim=-1, out=both))
raises(IndexError, "Dimension out of range", lambda: comm.scatter(whole, (0, 1), dim=2))
"""
    said = lines(code)
    for first, viewed in ((0, False), (4, True)):  # The first sends from the CPU, the second from cuda:0.
        counts = (3, 2, 3, 3)  # Four columns in thirds are two parts.
        assert said[first : first + 4] == [f"{list(range(n))} True True {viewed}" for n in counts]
    assert said[8:] == ["2", "[True, True]"]


def test_scatter_copies_on_the_streams_that_it_is_given(lines: Run):
    code = """
x, streams = torch.arange(4.0), [None, torch.cuda.Stream(1)]
parts = comm.scatter(x, (0, 1), streams=streams)
streams[1].synchronize()
print(at(parts), [part.tolist() for part in parts])
print(torch.cuda.current_device(), torch.cuda.current_stream(1) == torch.cuda.default_stream(1))
raises(RuntimeError, "the stream at index 0", lambda: comm.scatter(x, (0, 1), streams=streams[::-1]))
"""
    assert lines(code) == ["[0, 1] [[0.0, 1.0], [2.0, 3.0]]", "0 True"]


def test_gather_puts_parts_together_where_it_is_told(lines: Run):
    code = """
a, b = torch.ones(2, 3, device="cuda:0"), torch.full((2, 3), 2.0, device="cuda:1")
with torch.cuda.device(1):
    for dim in (0, 1, -1):
        wanted = torch.cat([a.cpu(), b.cpu()], dim)
        made = [comm.gather([a, b], dim, place) for place in (None, 0, "cuda:2", torch.device("cpu"))]
        out = torch.empty(wanted.shape, device="cuda:2")
        made.append(comm.gather([a, b], dim, out=out))
        print(at(made), all(torch.equal(x.cpu(), wanted) for x in made), made[-1] is out)
raises(RuntimeError, "at least one tensor to gather from", lambda: comm.gather([]))
raises(RuntimeError, "Expected all input tensors to be CUDA tensors, but", lambda: comm.gather([a, b.cpu()]))
raises(RuntimeError, "Input tensor at index 1 has invalid shape [2, 2]", lambda: comm.gather([a, b[:, 1:]]))
raises(RuntimeError, "'destination' must not be", lambda: comm.gather([a, b], destination="cpu", out=out))
raises(RuntimeError, "3", lambda: comm.gather([a, b], out=torch.empty(3, 3, device="cuda:0")))
"""
    assert lines(code) == ["[1, 0, 2, -1, 2] True True"] * 3


def test_arguments_and_results_of_replicas_may_be_nested(lines: Run):
    code = """
import collections
from torch.nn.parallel import gather, scatter

Pair = collections.namedtuple("Pair", "a b")
x = torch.arange(6.0)
parts = scatter((Pair(x, x + 1), {"k": [x, "word"]}, 7), [torch.device(i) for i in range(3)])
print([type(pair).__name__ for pair, _, _ in parts], at(pair.b for pair, _, _ in parts))
print(parts[1][0].a.tolist(), parts[1][1]["k"][0].tolist(), parts[1][1]["k"][1], parts[2][2])
for place in ("cpu", 2):
    whole = gather([Pair(x.cuda(0), x.cuda(1)), Pair(x.cuda(1), x.cuda(0))], place)
    print(type(whole).__name__, whole.a.device, torch.equal(whole.b.cpu(), torch.cat([x, x])))
print(gather([x.sum().cuda(0), x.sum().cuda(1)], 0).tolist())
uneven = [{"a": x.cuda(0)}, {"a": x.cuda(1), "b": x.cuda(1)}]
raises(ValueError, "same number of keys", lambda: gather(uneven, 0))

class Net(nn.Module):
    def forward(self, x, more):
        return [x, (more["x"].sin(), {"at": torch.full((1,), x.get_device(), device=x.device)})]

out = nn.DataParallel(Net(), device_ids=[2, 0, 1])(x, more={"unused": [], "x": x})
print(type(out[1]).__name__, out[0].device, out[0].tolist() == x.tolist(), out[1][1]["at"].tolist())
"""
    assert lines(code) == [
        "['Pair', 'Pair', 'Pair'] [0, 1, 2]",
        "[2.0, 3.0] [2.0, 3.0] word 7",
        *("Pair cpu True", "Pair cuda:2 True"),
        "[15.0, 15.0]",
        "tuple cuda:2 True [2, 0, 1]",
    ]


def test_data_parallel_computes_and_learns_as_the_module_does(lines: Run):
    code = """
from torch.nn.parallel import data_parallel, parallel_apply, replicate

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).to("cuda:1")
x = torch.randn(7, 4, device="cuda:1")
net(x).pow(2).sum().backward()
wanted = [p.grad.clone() for p in net.parameters()]
one, two = torch.device("cuda:1"), torch.device("cuda:2")
for ids, where in (([1, 0], None), ([1, 2, 0], 0), ([one], "cuda:1"), ([one, 0, two], two)):
    net.zero_grad()
    out = data_parallel(net, x, ids, where)
    out.pow(2).sum().backward()
    same = all(torch.allclose(p.grad, g, atol=1e-6) for p, g in zip(net.parameters(), wanted))
    near = torch.allclose(out.to(1), net(x), atol=1e-6)
    print(out.device, near, same, at(p.grad for p in net.parameters()))
wide = torch.randn(2, 6, device="cuda:0")
print(torch.equal(nn.DataParallel(nn.Identity(), dim=1)(wide), wide))
with torch.no_grad():
    print(nn.DataParallel(net, [1, 2])(x).requires_grad)
copies = replicate(net, [1, 0])
print(at(copy[0].weight for copy in copies), at(parallel_apply(copies, [x, x.cuda(0)])))
print(nn.DataParallel(net.cuda(0)).device_ids, nn.DataParallel(net, [2, 0]).output_device)
"""
    assert lines(code) == [
        *[f"{where} True True [1, 1, 1, 1]" for where in ("cuda:1", "cuda:0", "cuda:1", "cuda:2")],
        *("True", "False", "[1, 0] [1, 0]", "[0, 1, 2] 2"),
    ]


def test_data_parallel_keeps_buffers_and_modes_of_the_first_device(lines: Run):
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, device="cuda")
        self.register_buffer("learned", torch.zeros(1, device="cuda", requires_grad=True))

    def forward(self, x):
        assert self.learned.device == x.device == self.norm.running_mean.device
        assert torch.is_grad_enabled() == grad and torch.is_autocast_enabled() == (not grad)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.zero_grad()
        assert "DataParallel" in str(caught[0].message)
        return self.norm(x) + self.learned

net, alone = nn.DataParallel(Net()), nn.BatchNorm1d(2, device="cuda")
x = torch.arange(18.0, device="cuda").view(9, 2)
grad = True
net(x).sum().backward()
norm = net.module.norm
print(net.module.learned.grad.tolist(), norm.weight.grad.shape, norm.num_batches_tracked.item())
alone(x[:3])
print(torch.equal(alone.running_mean, norm.running_mean))
grad = False
with torch.no_grad(), torch.autocast("cuda"):
    net(x)
print(norm.num_batches_tracked.item())
"""
    assert lines(code) == ["[18.0] torch.Size([2]) 1", "True", "2"]


def test_data_parallel_refuses_what_it_cannot_split(lines: Run):
    code = """
from torch.nn.parallel import data_parallel

def linear(device):
    return nn.Linear(2, 2).to(device)

x = torch.ones(4, 2)
cases = [(linear("cpu"), None, 0), (linear("cuda:1"), None, 0), (linear("cuda:0"), [2, 0], 2)]
cases += [(nn.Sequential(linear("cuda:0"), linear("cuda:1")), [0, 1], 0)]
for module, ids, first in cases:
    words = f"module must have its parameters and buffers on device cuda:{first}"
    raises(RuntimeError, words, lambda: nn.DataParallel(module, ids)(x))
    raises(RuntimeError, words, lambda: data_parallel(module, x, ids))

class Bad(nn.Module):
    def forward(self, x):
        return {0: x}[x.get_device()]

raises(KeyError, "KeyError in replica 1 on device 1.", lambda: nn.DataParallel(Bad(), [0, 1])(x.cuda()))
lazy = nn.DataParallel(nn.LazyLinear(2).cuda())
raises(ValueError, "uninitialized parameter", lambda: lazy(x.cuda()))
raises((RuntimeError, AssertionError), "", lambda: nn.DataParallel(linear("cuda:0"), [0, 3])(x.cuda()))
print(nn.DataParallel(Bad())(x.cuda()[:1]).shape)
"""
    assert lines(code) == ["torch.Size([1, 2])"]
