"""Discarded tensors are recomputed, to the bit, by stress (plans do the same: test_recompute_plans.py)."""

from __future__ import annotations

import pytest
from processes import RunProgram

STRESSED = """
import innkeeper
import torch

innkeeper.configure("sim:2x64MiB,host:1GiB")


def trained(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50, 32),
        torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1),
        torch.nn.LayerNorm(32),
        torch.nn.Linear(32, 50),
        torch.nn.GELU(),
        torch.nn.Linear(50, 8),
        torch.nn.Softmax(-1),
    ).to(device)
    torch.manual_seed(1)  # of one stream from here on, whatever the model took
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    losses = []
    for step in range(4):
        x = torch.arange(24, device=device).reshape(2, 12) + step
        out = model(x)
        wide = torch.cat([out, out * 2 + 1, torch.where(out > 0.1, out, -out).tril()], dim=-1)
        loss = (wide.square() * torch.sigmoid(wide)).mean() + out.clone().relu().max(-1).values.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


losses, weights = trained("managed")
again = innkeeper.stats()["recomputed"]
plain_losses, plain = trained("cpu")
assert losses == plain_losses, (losses, plain_losses)
for name, value in plain.items():
    assert torch.equal(weights[name], value), name
assert innkeeper.stats()["escaped"] == 0
print(again)
"""


def recomputed(run_python: RunProgram, script: str, stress: str = "recompute") -> int:
    """Number of results that a script has recomputed; the script prints it."""
    done = run_python("-c", script, INNKEEPER_STRESS=stress)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_all_that_can_be_is_recomputed_to_the_bit(run_python: RunProgram) -> None:
    assert recomputed(run_python, STRESSED) > 200, "it was not discarded"


def test_nothing_is_without_being_told(run_python: RunProgram) -> None:
    assert recomputed(run_python, STRESSED, stress="") == 0


IN_PLACE = """
import innkeeper
import torch

innkeeper.configure("sim:64MiB,host:1GiB")
x = torch.arange(6.0).to("managed")
y = x * 2  # discarded at once
z = y.clone()
x.add_(100)  # y is computed first, of what x was
assert y.tolist() == [0, 2, 4, 6, 8, 10], y
assert z.tolist() == [0, 2, 4, 6, 8, 10], z
view = x.exp()[1:3]
x.data = torch.ones(6, device="managed")  # x's storage lives by what is made of it
assert torch.equal(view.cpu(), torch.exp(torch.tensor([101.0, 102.0]))), view
a = torch.rand(8, device="managed")
b, a_was = a.sin(), a.cpu()
with innkeeper.resident(a, write=True) as real:
    real.zero_()
del real  # who holds it may write at any time: then nothing is made of it
assert torch.equal(b.cpu(), a_was.sin()), "resident() writes what b is made of"
c = a.cos()
a.resize_(4096)
assert torch.equal(c.cpu(), torch.ones(8))
d = torch.tensor(3.0, device="managed")
e = d + 1
d.copy_(torch.tensor(9.0))
assert e.item() == 4
f = torch.rand(5, device="managed")
g = f.abs()
f.data.zero_()  # what no version counter sees
assert g.count_nonzero().item() == 5
print(innkeeper.stats()["recomputed"])
"""


def test_what_it_is_made_of_may_be_written_any_way(run_python: RunProgram) -> None:
    assert recomputed(run_python, IN_PLACE) >= 5


@pytest.mark.parametrize("value", ["yes", "1.5"])
def test_the_variable_is_checked(run_python: RunProgram, value: str) -> None:
    code = "import innkeeper, torch; torch.ones(1, device='managed')"
    done = run_python("-c", code, INNKEEPER_RECOMPUTE=value)
    assert done.returncode != 0
    assert "INNKEEPER_RECOMPUTE" in done.stderr


AS_THEN = """
import innkeeper
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

innkeeper.configure("sim:64MiB,host:1GiB")


def both(make):
    made = []
    for device in ("managed", "cpu"):
        torch.manual_seed(0)
        made.append(make(device))
    return made


def same(made, plain):
    assert torch.equal(made.cpu(), plain), (made.cpu(), plain)


thirds = both(lambda device: torch.arange(1, 9, device=device) / 3)  # of the default type
torch.set_default_dtype(torch.float64)
same(*thirds)
torch.set_default_dtype(torch.float32)

torch.set_num_threads(2)
mish = both(lambda device: torch.nn.functional.mish(torch.randn(1000003).to(device)))
torch.set_num_threads(1)
same(*mish)
assert torch.get_num_threads() == 1

small = both(lambda device: torch.full((8,), 1e-39).to(device) * 2)
torch.set_flush_denormal(True)
same(*small)
torch.set_flush_denormal(False)


flipped = torch.jit.CompilationUnit('''
def flipped(x):
    dims = [1]
    y = torch.flip(x, dims)
    dims[0] = 0
    return y
''').flipped
with torch.inference_mode():
    turned = both(lambda device: flipped(torch.arange(6.0).reshape(2, 3).to(device)))
same(*turned)

y = torch.arange(8.0).to("managed").exp()
with FakeTensorMode(), innkeeper.resident(y) as real:
    pass
assert torch.equal(real, torch.arange(8.0).exp())
z = torch.arange(8.0).to("managed").sin()


def peek(x):
    with innkeeper.resident(z):
        return (x * x).sum()


assert torch.func.grad(peek)(torch.tensor(3.0, device="managed")).item() == 6
print(innkeeper.stats()["recomputed"])
"""


def test_it_is_computed_as_it_was_then(run_python: RunProgram) -> None:
    assert recomputed(run_python, AS_THEN) >= 5


WRITERS = """
import threading
import innkeeper
import torch

innkeeper.configure("sim:64MiB,host:1GiB")
stop = threading.Event()
x1 = torch.ones(2048, device="managed")


def move():
    while not stop.is_set():
        try:
            innkeeper.evict(x1)
            innkeeper.prefetch(x1, "sim:0")
        except RuntimeError as error:
            assert "in use" in str(error), error


mover = threading.Thread(target=move)
mover.start()
try:
    for round in range(400):
        x2 = torch.full((1024,), float(round), device="managed")
        y = torch.cat([x1[:1024], x2])
        reader = threading.Thread(target=lambda: results.append(y.cpu()))
        results = []
        reader.start()
        x2.add_(1)  # y is of what x2 was
        reader.join()
        assert results[0][0] == 1 and results[0][-1] == round, (round, results)
finally:
    stop.set()
    mover.join()
del x2, y
assert innkeeper.stats()["recomputed"] > 100
"""


def test_a_reader_and_a_writer_of_an_input_come_at_once(run_python: RunProgram) -> None:
    done = run_python("-c", WRITERS, INNKEEPER_STRESS="recompute")
    assert done.returncode == 0, done.stderr


SWITCHED = """
import innkeeper
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
innkeeper.configure("sim:64MiB,host:1GiB")
x = torch.randn(1001)
for then in (False, True):
    with torch.backends.mkldnn.flags(enabled=then):
        plain, ours = F.gelu(x), F.gelu(x.to("managed"))  # is discarded at once
    with torch.backends.mkldnn.flags(enabled=not then):
        assert torch.equal(ours.cpu(), plain), then
        assert torch.backends.mkldnn.enabled is not then
again = innkeeper.stats()["recomputed"]
a = torch.rand(8).to("managed")
storage = a.untyped_storage()  # of which Python's wrapper may be the last owner
b, a_was = a.sin(), a.cpu()
del a
assert torch.equal(b.cpu(), a_was.sin())
print(again, innkeeper.stats()["recomputed"] - again)
"""


def test_onednn_is_as_it_was_then_and_what_python_may_own_alone_is_left(run_python: RunProgram) -> None:
    done = run_python("-c", SWITCHED, INNKEEPER_STRESS="recompute")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "0"]


BESIDE = """
import threading

import innkeeper
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
innkeeper.configure("sim:256MiB,host:512MiB")
base = torch.linspace(-4, 4, 200003)
with_it = F.gelu(base)
torch.backends.mkldnn.enabled = False
without = F.gelu(base)
assert not torch.equal(with_it, without), "or this shows nothing"
x = base.to("managed")
ours = [F.gelu(x) for _ in range(40)]  # each is discarded at once
torch.backends.mkldnn.enabled = True
wrong, over = 0, False


def beside():
    global wrong
    z = base.to("managed")
    while not over:
        wrong += not torch.equal(F.gelu(z).cpu(), with_it)


thread = threading.Thread(target=beside)
thread.start()
assert all(torch.equal(y.cpu(), without) for y in ours)
over = True
thread.join()
print(wrong)
"""


def test_no_thread_computes_by_the_settings_of_another_time(run_python: RunProgram) -> None:
    done = run_python("-c", BESIDE, INNKEEPER_STRESS="recompute")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


NO_SPACE = """
import innkeeper
import torch

innkeeper.configure("sim:1MiB,host:2MiB")
x = torch.ones(100_000, device="managed")
discarded = [x.sin() for _ in range(20)]  # far more than fits
try:
    torch.use_deterministic_algorithms(True)
except torch.OutOfMemoryError as error:
    print("a setting of PyTorch for all of the process" in str(error))
print(torch.are_deterministic_algorithms_enabled())
del discarded
torch.use_deterministic_algorithms(True)
print(torch.are_deterministic_algorithms_enabled())
"""


def test_without_free_space_a_setting_stays_as_it_is(run_python: RunProgram) -> None:
    done = run_python("-c", NO_SPACE, INNKEEPER_STRESS="recompute")
    assert (done.returncode, done.stdout.split()) == (0, ["True", "False", "True"]), done.stderr
