"""ManagedModule: a base class, a wrapper, from_module."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from abc import ABC, abstractmethod
from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import innkeeper
import pytest
from innkeeper import ManagedModule, ManagedTensor

import torch
from torch import Tensor, nn


class Net(ManagedModule):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return self.inner(x) * self.scale


def all_managed(module: nn.Module) -> bool:
    return all(t.device.type == "managed" for t in (*module.parameters(), *module.buffers()))


def test_a_base_class_needs_no_move():
    net = Net(width=5)
    assert all_managed(net) and isinstance(net, nn.Module)
    assert isinstance(net.scale, nn.Parameter) and isinstance(net.scale, ManagedTensor)
    y = net(torch.ones(2, 4))
    assert y.device.type == "managed" and y.shape == (2, 5) and net.count.item() == 1


def test_trains_as_plain_pytorch_does():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    managed = ManagedModule(copy.deepcopy(plain))
    assert type(plain) is nn.Sequential
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    losses = []
    for module, target in ((plain, y), (managed, y.to("managed"))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, foreach=False)
        for _ in range(5):
            loss = nn.functional.mse_loss(module(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:5] == losses[5:] and losses[4] < losses[0]
    for a, b in zip(plain.parameters(), managed.parameters(), strict=True):
        assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("wrap", [ManagedModule, ManagedModule.from_module])
def test_wraps_an_initialised_module_in_place(wrap):
    linear = nn.Linear(3, 2)
    weight = linear.weight
    optimizer = torch.optim.SGD(linear.parameters(), lr=1.0)
    module = wrap(linear)
    assert module is linear and module.weight is weight and all_managed(module)
    assert isinstance(module, ManagedModule) and isinstance(module, nn.Linear)
    assert list(module.state_dict()) == ["weight", "bias"] and wrap(module) is module
    module(torch.ones(1, 3)).sum().backward()
    before = weight.detach().cpu()
    optimizer.step()
    assert torch.equal(weight.detach().cpu(), before - 1)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got int"):
        wrap(3)


def test_weights_stay_tied():
    class Tied(ManagedModule):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

    tied = Tied()
    assert tied.head.weight is tied.embedding.weight and len(list(tied.parameters())) == 1


def test_pin_and_unpin():
    net = Net()
    net.pin("sim:1")
    assert all("sim:1" in places for places in innkeeper.where(net).values())
    with pytest.raises(ValueError, match="pinned at sim:1"):
        innkeeper.evict(net)
    net.unpin()
    innkeeper.evict(net)


def test_copies_and_pickles():
    for net in (Net(), ManagedModule(nn.Linear(4, 8))):
        x = torch.ones(1, 4)
        buffer = io.BytesIO()
        torch.save(net, buffer)
        buffer.seek(0)
        pickled = pickle.loads(pickle.dumps(net))
        for other in (copy.deepcopy(net), torch.load(buffer, weights_only=False), pickled):
            assert (
                type(other) is type(net) and all_managed(other) and torch.equal(other(x).cpu(), net(x).cpu())
            )


class Base(nn.Module, ABC):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4, width)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...


class Concrete(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Both(ManagedModule, Concrete, ABC):
    """A managed base together with an abstract one, and no constructor of its own."""


class Counting(type):
    made = 0

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        Counting.made += 1
        return super().__call__(*args, **kwargs)


class WithMetaclass(nn.Linear, metaclass=Counting):
    pass


def test_other_metaclasses_stand_beside_it():
    x = torch.ones(3, 4)
    assert Both(2)(x).shape == (3, 2)
    wrapped = ManagedModule.from_module(Concrete(2))
    assert isinstance(wrapped, Base) and wrapped(x).device.type == "managed"
    counted = ManagedModule(WithMetaclass(4, 2))
    assert Counting.made == 1 and counted(x).shape == (3, 2)

    class Derived(ManagedModule, WithMetaclass):
        pass

    assert all_managed(Derived(4, 2)) and Counting.made == 2
    with pytest.raises(TypeError, match="abstract"):
        Base(3)  # type: ignore[abstract]


def test_constructors_follow_each_other_as_python_has_it():
    order = []

    class A(ManagedModule):
        pass

    class B(ManagedModule):
        def __init__(self, *, size: int) -> None:
            super().__init__()
            order.append("B")
            self.inner = nn.Linear(size, size)
            self.seen = self.inner.weight.device.type

    class C(A, B):
        pass

    c = C(size=2)
    assert order == ["B"] and c.seen == "cpu" and all_managed(c)

    class Fails(B):
        def __init__(self) -> None:
            super().__init__(size=1)
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        Fails()
    assert not any("construction" in name for name in vars(c))
    assert list(ManagedModule().parameters()) == []


def test_what_comes_later_is_moved_at_the_next_call_as_the_same_objects():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    x = torch.ones(2, 4)
    net(x).sum().backward()
    optimizer.step()
    weights = list(net.parameters())
    net.cpu()
    assert net.scale.device.type == "cpu" and net.scale.grad.device.type == "cpu"
    optimizer.zero_grad()
    net(x).sum().backward()
    assert all_managed(net) and all(a is b for a, b in zip(weights, net.parameters(), strict=True))
    before = net.scale.detach().cpu()
    optimizer.step()
    assert not torch.equal(net.scale.detach().cpu(), before)
    net.inner.extra = nn.Linear(2, 2)
    net.register_buffer("late", torch.ones(1))
    net(x)
    assert all_managed(net)
    state = {name: value.cpu() for name, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert not all_managed(net)
    net(x)
    assert all_managed(net)


def test_cuda_s_words_leave_it_managed():
    net = Net()
    weight = net.inner.weight
    named = (net.to("cuda"), net.to(torch.device("cuda:1")))
    for same in (net.cuda(), net.cuda(0), *named, net.cuda(disperse=True)):
        assert same is net and all_managed(net) and net.inner.weight is weight
    net.to("cuda:1")
    assert {*map(tuple, innkeeper.where(net).values())} == {("sim:1",)}
    assert net.to("cuda", torch.float64).scale.dtype == torch.float64
    assert net.cpu().cuda(1) is net and innkeeper.where(net)["scale"] == ["sim:1"]
    assert net.to_empty(device="cuda") is net and all_managed(net)
    with pytest.raises(ValueError, match="none of the 2 nodes"):
        net.cuda(5)
    with pytest.raises(ValueError, match="none of the 2 nodes"):
        net.to("cuda:5")


@dataclasses.dataclass(frozen=True)
class Batch:
    tokens: Tensor
    lengths: list[Tensor]
    name: str = "batch"


class Pair(NamedTuple):
    first: Tensor
    second: int


class OwnList(list):  # type: ignore[type-arg]
    """A container of the user's."""


class Echo(ManagedModule):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


def test_containers_of_inputs_are_moved_and_the_caller_s_stay():
    x = torch.ones(2)
    batch, pair, own = Batch(x, [x]), Pair(x, 3), OwnList([x])
    default = defaultdict(list, {"x": x})
    args, kwargs = Echo()(batch, pair, own, default, UserDict({"x": x}), (x, torch.Size((1,))), named=x)
    there = [
        args[0].tokens, args[0].lengths[0], args[1].first, args[2][0], args[3]["x"], args[4]["x"], args[5][0],
        kwargs["named"],
    ]  # fmt: skip
    assert [each.device.type for each in there] == ["managed"] * 8
    assert [type(each) for each in args] == [Batch, Pair, OwnList, defaultdict, UserDict, tuple]
    assert args[0].name == "batch" and args[1].second == 3 and args[3]["new"] == [] and args[5][1] == (1,)
    here = (batch.tokens, batch.lengths[0], pair.first, own[0], default["x"])
    assert {each.device.type for each in here} == {"cpu"}


class Sealed(dict):  # type: ignore[type-arg]
    """Like an immutable configuration, with an error of its author's choice."""

    def __setitem__(self, key: object, value: object) -> None:
        raise KeyError("sealed")


class SealedOrder(OrderedDict):  # type: ignore[type-arg]
    __setitem__ = Sealed.__setitem__

    def __init__(self, **items: object) -> None:
        for key, value in items.items():
            OrderedDict.__setitem__(self, key, value)


class SealedSlots(Sealed):
    __slots__ = ("meta",)


class Immutable(Sealed):
    def __copy__(self) -> Immutable:
        return self


def test_dicts_that_are_sealed_in_other_ways_keep_their_items_and_attributes():
    x = torch.ones(2)
    slots, order, immutable = SealedSlots({"x": x}), SealedOrder(x=x, n=1), Immutable({"x": x})
    slots.meta = "kept"
    there, _ = Echo()(slots, order, immutable)
    assert [each["x"].device.type for each in there] == ["managed"] * 3
    assert there[0].meta == "kept" and list(there[1]) == ["x", "n"]
    assert {each["x"].device.type for each in (slots, order, immutable)} == {"cpu"}


def test_a_read_only_dict_is_moved_too():
    x = torch.ones(2)
    given = Sealed({"x": x})
    (there,), _ = Echo()(given)
    assert type(there) is Sealed and there["x"].device.type == "managed" and given["x"] is x
    with pytest.raises(KeyError, match="sealed"):
        there["x"] = x


def test_what_holds_nothing_to_move_is_handed_on_itself():
    cache: list[Tensor] = []
    state = {"x": torch.ones(1, device="managed")}
    (first, second, third), _ = Echo()(cache, state, Echo)
    assert first is cache and second is state and third is Echo


def test_packed_sequences_go_in_and_out():
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    plain = nn.LSTM(4, 8)
    expected, _ = plain(packed)
    result, (h, _) = ManagedModule(plain)(packed)
    assert result.data.device.type == h.device.type == "managed" and result.batch_sizes.device.type == "cpu"
    assert torch.equal(result.data.cpu(), expected.data)


def test_any_method_and_any_part_takes_tensors_of_the_cpu():
    class Coder(ManagedModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def encode(self, x: Tensor) -> Tensor:
            return self.layer(x)

    coder = Coder()
    x = torch.ones(1, 4)
    assert torch.equal(coder.encode(x), coder.layer(x)) and coder.encode(x).device.type == "managed"


def test_modules_that_change_their_class_stay_managed():
    lazy = ManagedModule(nn.LazyLinear(3))
    assert lazy(torch.ones(2, 5)).shape == (2, 3)
    assert isinstance(lazy, ManagedModule) and type(lazy).__name__ == "ManagedLinear" and all_managed(lazy)
    with pytest.raises(TypeError, match="cannot wrap a Rec"):
        ManagedModule(torch.jit.script(nn.Linear(2, 2)))


class OwnPickle(nn.Linear):
    def __reduce__(self) -> Any:
        return (OwnPickle, (self.in_features, self.out_features))


class OwnState(nn.Linear):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "note": "kept"}


def test_classes_with_pickles_of_their_own():
    for net in (ManagedModule(OwnPickle(4, 8)), ManagedModule(OwnState(4, 8))):
        other = pickle.loads(pickle.dumps(net))
        assert type(other) is type(net) and all_managed(other)
    assert other.note == "kept"


class Rows(tuple[Any, ...]):
    """A tuple with a constructor and an attribute of its own."""

    def __new__(cls, *items: Any) -> Rows:
        return super().__new__(cls, items)


def test_classes_of_tuples_are_kept():
    rows = Rows(torch.ones(1), torch.ones(2))
    rows.label = "train"
    best = torch.ones(3, 2).max(0)
    (moved, results), _ = Echo()(rows, best)
    assert type(moved) is Rows and [each.device.type for each in moved] == ["managed"] * 2
    assert moved.label == "train" and len(rows) == 2 and rows[0].device.type == "cpu"
    assert type(results) is type(best) and results.values.device.type == "managed"


def test_what_is_handed_over_twice_stays_one():
    x, rows = torch.ones(1), [torch.ones(2)]
    (a, b, c, d), kwargs = Echo()(x, x, rows, rows, again=x)
    assert a is b and a is kwargs["again"] and c is d and a.device.type == "managed"
    loop: list[Any] = [1]
    loop.append(loop)
    (same,), _ = Echo()(loop)
    assert same is loop
    node = Node(torch.ones(1))
    node.parent = node
    (moved,), _ = Echo()(node)
    assert moved.value.device.type == "managed" and node.value.device.type == "cpu"


@dataclasses.dataclass
class Node:
    value: Tensor
    parent: Node | None = None


@dataclasses.dataclass(eq=False)
class Data(ManagedModule):
    width: int

    def __post_init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, self.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_dataclasses_are_modules_too():
    net = Data(3)
    assert net(torch.ones(2, 4)).shape == (2, 3) and all_managed(net)


def test_modules_on_meta_stay_there():
    with torch.device("meta"):
        net = Net()
    assert net.scale.is_meta and net.to_empty(device="managed") is net and all_managed(net)
    plain = ManagedModule(nn.Linear(2, 2, device="meta"))
    assert plain(torch.ones(1, 2, device="meta")).is_meta


def test_functional_calls_leave_the_caller_s_tensors():
    net = ManagedModule(nn.Linear(2, 1))
    w, b = torch.ones(1, 2, requires_grad=True), torch.zeros(1)
    y = torch.func.functional_call(net, {"weight": w * 2, "bias": b}, torch.ones(3, 2))
    y.sum().backward()
    assert w.device.type == b.device.type == "cpu" and w.grad is not None and w.grad.tolist() == [[6, 6]]


def test_torch_compile_sees_one_graph():
    net = ManagedModule(nn.Linear(4, 2))
    x = torch.randn(3, 4)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert torch.equal(compiled(x), net(x)) and torch.equal(compiled(input=x), net(x))
    echo = torch.compile(Echo(), backend="eager", fullgraph=True)
    (batch, rest), _ = echo({"x": x, "n": 1}, [x, None])
    assert batch["x"].device.type == rest[0].device.type == "managed" and (batch["n"], rest[1]) == (1, None)
