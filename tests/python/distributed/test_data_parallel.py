"""Data parallelism over nodes: the bits of the same parts one after another on the CPU."""

from __future__ import annotations

import copy
import io
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import innkeeper
import pytest
from budget_fixture import same
from models import Gpt, Norm
from processes import RunProgram

import torch
from torch import Tensor, nn

F = nn.functional
Configure = Callable[[str], None]


class InParts(nn.Module):
    """Result of data parallelism over ``count`` nodes, computed on the CPU, and without threads.

    Each part has leaves of its own, so that the gradients can be added in the order of the parts.
    """

    def __init__(self, module: nn.Module, count: int) -> None:
        super().__init__()
        self.module, self.count = module, count
        self.copies: list[nn.Module] = []

    def forward(self, *inputs: Tensor) -> Tensor:
        parts = list(zip(*(x.chunk(self.count) for x in inputs), strict=True))
        self.copies = [copy.deepcopy(self.module) for _ in parts]
        for each in self.copies:
            each.zero_grad()
        result = torch.cat([each(*part) for each, part in zip(self.copies, parts, strict=True)])
        for mine, of_first in zip(self.module.buffers(), self.copies[0].buffers(), strict=True):
            mine.copy_(of_first)
        return result

    def add_gradients(self) -> None:
        for name, parameter in self.module.named_parameters():
            gradients = [each.get_parameter(name).grad for each in self.copies]
            total = gradients[0]
            for gradient in gradients[1:]:
                total = total + gradient
            parameter.grad = total


def steps(model: Any, inputs: list[Tensor], target: Tensor, count: int = 3) -> tuple[list[float], Any]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        out = model(*inputs)
        loss = F.mse_loss(out, target.to(out.device)) if out.dim() == 2 else out.logsumexp(-1).mean()
        loss.backward()
        if isinstance(model, InParts):
            model.add_gradients()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], list[Tensor]]]] = {
    "norm": (Norm, lambda rows: [torch.randn(rows, 32)]),
    "gpt": (lambda: Gpt(dropout=0.0), lambda rows: [torch.randint(96, (rows, 24))]),
    "rerun": (lambda: Gpt(dropout=0.0, rerun=True), lambda rows: [torch.randint(96, (rows, 24))]),
    "tied": (lambda: Gpt(dropout=0.0, tied=True), lambda rows: [torch.randint(96, (rows, 24))]),
}


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("which", MODELS)
def test_trains_to_the_bits_of_the_parts_one_after_another(configure: Configure, which: str, nodes: int):
    make, batch = MODELS[which]
    torch.manual_seed(0)
    plain = make()
    inputs, target = batch(11), torch.randn(11, 8)  # The last part is smaller.
    managed = copy.deepcopy(plain)
    expected = steps(InParts(plain, nodes), inputs, target)

    configure(f"sim:{nodes}x16MiB,host:256MiB")
    innkeeper.manager().reset_stats()
    model = nn.DataParallel(managed.to("managed"))
    got = steps(model, inputs, target)
    peaks = [innkeeper.stats()["nodes"][f"sim:{i}"]["peak"] for i in range(nodes)]
    assert got[0] == expected[0]
    for name, value in expected[1].items():
        assert same(got[1][name], value), name
    assert all(name.startswith("module.") for name in got[1])
    assert min(peaks) > max(peaks) // 4, f"a node did nothing: {peaks}"
    del model, managed

    # The same in half of that memory.
    configure(f"sim:{nodes}x{max(peaks) // 2}B,host:256MiB")
    torch.manual_seed(0)
    again = make()
    got = steps(innkeeper.DataParallel(again), inputs, target)
    assert got[0] == expected[0]
    for name, value in expected[1].items():
        assert same(got[1][name], value), name
    assert innkeeper.stats()["evictions"] > 0
    del again


def test_replicas_compute_with_the_callers_threads():
    """Where the host computes for simulated GPUs, a sum's bits depend on their number."""
    seen: list[int] = []

    class Look(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return super().forward(x)

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    # A DataLoader that pins memory does the same.
    other = threading.Thread(target=torch.set_num_threads, args=(1,))
    other.start()
    other.join()
    innkeeper.DataParallel(Look(4, 4))(torch.ones(8, 4))
    torch.set_num_threads(before)
    assert seen == [3, 3]


def test_each_replica_computes_at_its_node():
    seen: dict[int, list[str]] = {}

    class Look(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large = nn.Linear(256, 256)

        def forward(self, x: Tensor) -> Tensor:
            y = self.large(x)
            seen[int(x[0, 0].item())] = innkeeper.where(y)
            return y

    model = nn.DataParallel(Look().to("managed"))
    x = torch.arange(4.0).repeat_interleave(256).view(4, 256)
    for _ in range(3):  # The weights' owner is sim:0.
        y = model(x)
        assert seen == {0: ["sim:0"], 2: ["sim:1"]}
        assert innkeeper.where(y) == ["sim:0"]
    (part,) = torch.autograd.grad(y.sum(), [model.module.large.weight])
    assert part.shape == (256, 256)


def test_a_model_that_is_wrapped_before_it_is_moved():
    model = nn.DataParallel(nn.Linear(4, 2))
    x = torch.randn(6, 4)
    expected = model(x)
    assert expected.device.type == "cpu"  # The same as without an accelerator.
    model.to("managed")
    assert same(model(x), expected)
    assert list(model.state_dict()) == ["module.weight", "module.bias"]


def test_another_device_is_as_without_us():
    plain = nn.Linear(4, 2)
    model = nn.DataParallel(plain, device_ids=[0, 1])
    assert model.device_ids == [] and model(torch.ones(3, 4)).device.type == "cpu"
    with pytest.raises(RuntimeError, match="device type could not be determined"):
        nn.parallel.data_parallel(plain, torch.ones(3, 4))


def test_nodes_by_number_name_and_device():
    linear = nn.Linear(4, 2).to("managed")
    x = torch.ones(5, 4, device="managed")
    expected = linear(x)
    for chosen in ([1, 0], ["sim:1", "sim:0"], [torch.device("managed:1"), torch.device("managed")], [1]):
        model = nn.DataParallel(linear, device_ids=chosen)
        assert same(model(x), expected.cpu())
        assert innkeeper.where(innkeeper.DataParallel(linear, chosen)(x)) == ["sim:1"]
    assert same(nn.parallel.data_parallel(linear, x, [0, 1]), expected.cpu())
    assert innkeeper.DataParallel(linear, output_device="cpu")(x).device.type == "cpu"
    assert innkeeper.DataParallel(linear, output_device=-1)(x).device.type == "cpu"
    assert innkeeper.where(innkeeper.DataParallel(linear, output_device=1)(x)) == ["sim:1"]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 2], "device_ids has 2, and the 2 computing nodes are sim:0, sim:1"),
        ([-1], "device_ids has -1"),
        (["cuda:0"], "device_ids has 'cuda:0'"),
        (["host"], "device_ids has 'host'"),
        ([0, "sim:0"], "names a node twice: sim:0, sim:0"),
        ([], "device_ids is empty"),
    ],
)
def test_nodes_that_are_not_there(ids: list[Any], message: str):
    linear = nn.Linear(4, 2).to("managed")
    with pytest.raises(ValueError, match=message):
        innkeeper.DataParallel(linear, ids)
    with pytest.raises(ValueError, match=message):
        nn.DataParallel(linear, ids)(torch.ones(2, 4))


def test_batches_smaller_than_the_nodes(configure: Configure):
    configure("sim:4x8MiB,host:64MiB")
    linear = nn.Linear(4, 2)
    model = innkeeper.DataParallel(copy.deepcopy(linear))
    for rows in (1, 2, 3, 5):
        x = torch.randn(rows, 4)
        assert same(model(x), torch.cat([linear(part) for part in x.chunk(4)]))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        model()  # One replica, as without data parallelism.
    del model


Pair = namedtuple("Pair", "left right")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, pair: Pair, *, rows: dict[str, Any], word: str, nothing: None = None) -> Any:
        assert word == "word" and nothing is None and rows["other"] == (3,)
        both = Pair(pair.left * self.scale, [pair.right + rows["x"][0]])
        return OrderedDict(
            pair=both, none=None, tuple=(pair.left,), complex=torch.complex(pair.left, pair.right)
        )


def test_nested_inputs_and_outputs():
    left, right, x = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3)
    arguments = {"rows": {"x": [x], "other": (3,)}, "word": "word"}
    expected = Nested()(Pair(left, right), **arguments)
    got = innkeeper.DataParallel(Nested())(Pair(left, right), **arguments)
    assert type(got) is OrderedDict and list(got) == list(expected) and type(got["pair"]) is Pair
    assert got["none"] is None and type(got["pair"].right) is list and type(got["tuple"]) is tuple
    assert same(got["pair"].left, expected["pair"].left)
    assert same(got["pair"].right[0], expected["pair"].right[0])
    assert same(got["tuple"][0], left) and same(got["complex"], expected["complex"])


def test_scalars_become_a_vector():
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.weight).sum()

    model = innkeeper.DataParallel(Loss())
    x = torch.randn(4, 3)
    with pytest.warns(UserWarning, match="will instead unsqueeze and return a vector"):
        losses = model(x)
    assert losses.shape == (2,)
    losses.mean().backward()
    plain = torch.stack([part.sum(0) / 2 for part in x.chunk(2)])
    assert same(model.module.weight.grad, plain[0] + plain[1])


def test_inputs_get_gradients_and_another_dimension():
    linear = nn.Linear(3, 3)
    model = innkeeper.DataParallel(copy.deepcopy(linear), dim=1)
    x = torch.randn(2, 7, 3, requires_grad=True)
    y = x.detach().to("managed").requires_grad_()
    linear(x).square().sum().backward()
    model(y).square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    z = x.detach().clone().requires_grad_()
    model(z).square().sum().backward()
    assert z.grad.device.type == "cpu" and same(y.grad, z.grad)


def test_an_exception_in_a_replica_is_raised_and_leaves_all_as_it_was():
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            if x.sum() > 3:
                raise KeyError(f"rows {x.shape[0]}")
            return y

    model = innkeeper.DataParallel(Fails())
    before = {name: value.cpu() for name, value in model.state_dict().items()}
    for bad, replica in ((0, 0), (3, 1)):
        x = torch.zeros(4, 2)
        x[bad] = 9
        with pytest.raises(KeyError, match=f"in replica {replica} on node sim:{replica}"):
            model(x)
    assert model(torch.zeros(4, 2)).shape == (4, 2)
    for name, value in model.state_dict().items():
        assert same(value, before[name])


def test_running_out_of_memory_is_that_error(configure: Configure):
    configure("sim:2x64KiB,host:64MiB")

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            with innkeeper.resident(torch.ones(20000, device="managed"), innkeeper.where(x)[0]):
                return x * self.weight

    model = innkeeper.DataParallel(Large())
    with pytest.raises(torch.OutOfMemoryError, match="in replica 0 on node sim:0"):
        model(torch.ones(4, 4))
    del model


@pytest.mark.parametrize("inside", [False, True])
def test_random_numbers_do_not_depend_on_which_is_faster(inside: bool):
    def run() -> tuple[list[Tensor], Tensor]:
        torch.manual_seed(5)
        model = innkeeper.DataParallel(nn.Dropout(0.5))
        model.module.register_buffer("where", torch.zeros(1, device="managed"))
        outputs = [model(torch.ones(8, 100)).cpu() for _ in range(3)]
        return outputs, torch.rand(3, device="managed").cpu()

    def once() -> tuple[list[Tensor], Tensor]:
        if not inside:
            return run()
        with innkeeper.experiment():
            return run()

    first, drawn = once()
    again, drawn_again = once()
    assert all(same(a, b) for a, b in zip(first, again, strict=True)) and same(drawn, drawn_again)
    assert not first[0].equal(first[1]), "two steps drop the same"
    assert not first[0][:4].equal(first[0][4:]), "two replicas drop the same"


def test_a_model_that_draws_nothing_draws_nothing():
    torch.manual_seed(5)
    expected = torch.rand(3, device="managed")
    torch.manual_seed(5)
    innkeeper.DataParallel(nn.Linear(4, 2).to("managed")).eval()  # Its weights were drawn on the CPU.
    torch.manual_seed(5)
    innkeeper.DataParallel(nn.Identity().to("managed"))(torch.ones(4, 4))
    assert same(torch.rand(3, device="managed"), expected.cpu())


def test_replicas_run_in_the_callers_modes():
    seen = []

    class Look(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            seen.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled(), y.dtype))
            return y

    model = innkeeper.DataParallel(Look(4, 2))
    x = torch.ones(4, 4)
    for scope, expected in (
        (torch.no_grad(), (False, False, torch.float32)),
        (torch.inference_mode(), (False, True, torch.float32)),
        (torch.autocast("managed", torch.bfloat16), (True, False, torch.bfloat16)),
    ):
        seen.clear()
        with scope:
            model(x)
        assert seen == [expected] * 2


def test_buffers_are_those_of_the_first_replica():
    norm = Norm().to("managed")
    before = norm.norm.running_mean.data_ptr()
    x = torch.randn(8, 32)
    expected = copy.deepcopy(norm).cpu()
    expected(x[:4])
    nn.DataParallel(norm)(x)
    assert norm.norm.running_mean.data_ptr() == before
    assert same(norm.norm.running_mean, expected.norm.running_mean)
    assert norm.norm.num_batches_tracked.item() == 1


def test_is_saved_copied_and_loaded():
    model = innkeeper.DataParallel(Norm())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = innkeeper.DataParallel(Norm())
    other.load_state_dict(torch.load(file))
    x = torch.randn(4, 32)
    assert same(other.eval()(x), model.eval()(x).cpu())
    assert same(copy.deepcopy(model)(x), model(x).cpu())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert same(torch.load(file, weights_only=False)(x), model(x).cpu())


def test_a_parameter_that_one_replica_does_not_use():
    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.always, self.never = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
            self.sometimes = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.always * (self.sometimes if x[0, 0] > 0 else 1)

    model = innkeeper.DataParallel(Some())
    model(torch.tensor([[-1.0, 1], [2, 3]])).sum().backward()
    assert model.module.never.grad is None
    assert model.module.sometimes.grad.tolist() == [2.0, 3.0]
    assert model.module.always.grad.tolist() == [1.0, 4.0]


def test_lazy_modules_are_told_of():
    with pytest.raises(RuntimeError, match="Run a dummy forward pass"):
        nn.DataParallel(nn.LazyLinear(3).to("managed"), [0, 1])(torch.ones(4, 4))


def test_hundreds_of_training_steps_leave_nothing():
    model = innkeeper.DataParallel(Norm())
    x = torch.randn(4, 32)
    counts = []
    for _ in range(150):
        model(x).sum().backward()
        model.zero_grad()
        counts.append([innkeeper.stats()["nodes"][node]["replicas"] for node in ("sim:0", "sim:1", "host")])
    assert counts[20] == counts[-1]


def test_the_plain_import_says_nothing_of_data_parallel_on_the_cpu(run_python: RunProgram):
    done = run_python(
        "-W", "error", "-c",
        "import innkeeper, torch; from torch.nn import DataParallel, Linear; "
        "print(DataParallel(Linear(2, 2))(torch.ones(3, 2)).device)",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cpu\n"


def test_numpy_is_not_needed(run_python: RunProgram):
    code = """
import sys
sys.modules["numpy"] = None
import innkeeper, torch
model = torch.nn.DataParallel(torch.nn.Linear(100, 10).to("managed"))
print(*model(torch.ones(64, 100)).shape)
"""
    done = run_python("-W", "ignore", "-c", code, nodes="sim:2x16MiB,host:1GiB")
    assert done.stdout == "64 10\n", done.stderr
