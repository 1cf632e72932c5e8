"""Pickling, copying and saving managed tensors, modules and optimizers: as on the CPU, sharing included.

Each runs under pressure: the test's other tensors do not fit at the same time.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import innkeeper
import pytest
from budget_fixture import Squeeze, flood

import torch
from torch import Tensor, nn

KiB = 1 << 10
Way = Callable[[Any], Any]


def pickled(protocol: int) -> Way:
    return lambda x: pickle.loads(pickle.dumps(x, protocol))


def python_pickled(x: Any) -> Any:
    """Uses pickle's Python implementation, which has its own way through the registries."""
    return pickle._loads(pickle._dumps(x))


def saved(x: Any, **options: Any) -> Any:
    return torch.load(in_file(x), **options)


def saved_before_1_6(x: Any, **options: Any) -> Any:
    return torch.load(in_file(x, _use_new_zipfile_serialization=False), **options)


def in_file(x: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(x, file, **options)
    file.seek(0)
    return file


WAYS: dict[str, Way] = {
    **{f"pickle, protocol {n}": pickled(n) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "pickle in Python": python_pickled,
    "torch.save": saved,
    "torch.save, any class": lambda x: saved(x, weights_only=False),
    "torch.save in the old format": saved_before_1_6,
    "torch.save in the old format, any class": lambda x: saved_before_1_6(x, weights_only=False),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
}
FORMATS = {"new": saved, "old": saved_before_1_6}
by_every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
in_both_formats = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS.keys())

TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "scalar": lambda x: x[3, 4],
    "part": lambda x: x[1:5, ::2],
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(4, 32),
    "empty": lambda x: x[:0],
    "bfloat16": lambda x: x.bfloat16(),
    "int8": lambda x: x.to(torch.int8),
    "bool": lambda x: x > 100,
    "complex": lambda x: torch.complex(x, x + 1),
    "conjugated": lambda x: torch.complex(x, x + 1).conj(),
    "negative view": lambda x: torch.complex(x, x + 1).conj().imag,
    "parameter": lambda x: nn.Parameter(x.clone()),
    "buffer": lambda x: nn.Buffer(x.clone()),
    "with an attribute": lambda x: with_attribute(x.clone()),
    "coo": lambda x: x.to_sparse(),
    "coalesced": lambda x: x.to_sparse().coalesce(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 2)),
    "bsc": lambda x: x.to_sparse_bsc((2, 2)),
}


def with_attribute(x: Tensor) -> Tensor:
    x.note = "kept"
    return x


def values() -> Tensor:
    return torch.arange(1024.0).reshape(32, 32)


def assert_same(a: Tensor, b: Tensor) -> None:
    """Checks that `a` is `b` on the managed device: values, geometry, kind."""
    assert a.device == torch.device("managed:0") and type(a) is type(b) and a.requires_grad == b.requires_grad
    assert (a.dtype, a.shape, a.layout) == (b.dtype, b.shape, b.layout)
    if a.layout == torch.strided:
        assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
        assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
    assert torch.equal(a.detach().cpu().to_dense(), b.detach().to_dense())


@by_every_way
@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS.keys())
def test_a_tensor_is_what_it_is_on_the_cpu(make: Callable[[Tensor], Tensor], way: Way, squeeze: Squeeze):
    x = make(values().to("managed"))
    try:
        expected = way(make(values()))
    except NotImplementedError:  # PyTorch has no deep copy of compressed sparse tensors on the CPU.
        expected = make(values())
    squeeze(64 * KiB)
    flood(128 * KiB)
    assert_same(way(x), expected)
    assert getattr(way(x), "note", None) == getattr(expected, "note", None)
    flood(128 * KiB)
    torch._utils._validate_loaded_sparse_tensors()  # Frees the unpickled tensors, which are kept until then.


@by_every_way
def test_views_share_what_they_share_on_the_cpu(way: Way):
    """pickle alone restores storages separately; all other ways keep shared storages together."""
    outcomes = []
    for device in ("cpu", "managed"):
        base = torch.arange(8.0).to(device)
        first, second, whole = way([base[2:6], base[4:].view(2, 2), base])
        first.zero_()
        outcomes.append([t.tolist() for t in (first, second, whole, base)])
    assert outcomes[0] == outcomes[1]


def trained(device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = nn.ModuleList(nn.Linear(48, 48) for _ in range(4)).to(device)
    model[3].weight = model[0].weight
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    y = torch.linspace(-1, 1, 48, device=next(model.parameters()).device).reshape(1, 48)
    for layer in model:
        y = torch.tanh(layer(y))
    optimizer.zero_grad()
    y.square().sum().backward()
    optimizer.step()


@by_every_way
def test_a_model_and_its_optimizer_go_on_training(way: Way, squeeze: Squeeze):
    model, optimizer = trained("managed")
    plain, plain_optimizer = trained("cpu")
    squeeze(128 * KiB)
    state, its_state = way(model.state_dict()), way(optimizer.state_dict())
    if way in (saved, saved_before_1_6):  # Weights alone.
        twin, twin_optimizer = trained("managed")
    else:
        twin, twin_optimizer = way((model, optimizer))
        assert twin[3].weight is twin[0].weight
    twin.load_state_dict(state)
    twin_optimizer.load_state_dict(its_state)
    step(twin, twin_optimizer)
    step(plain, plain_optimizer)
    for a, b in zip(twin.parameters(), plain.parameters(), strict=True):
        assert_same(a, b)
    flood(128 * KiB)


@in_both_formats
def test_tied_storages_of_a_state_dict_stay_tied(form: Way):
    model, _ = trained("managed")
    for location in ("managed", "cpu", torch.device("managed:0"), {"managed:0": "cpu"}, None):
        state = form(model.state_dict(), map_location=location)
        assert state["0.weight"].data_ptr() == state["3.weight"].data_ptr() != state["1.weight"].data_ptr()
        state["0.weight"].zero_()
        assert not state["3.weight"].any() and model[0].weight.any()


@in_both_formats
@pytest.mark.parametrize("weights_only", [True, False])
def test_files_are_read_on_other_devices(form: Way, weights_only: bool):
    def read(x: Tensor, location: Any) -> Tensor:
        return form(x, map_location=location, weights_only=weights_only)

    for make in TENSORS.values():
        plain, managed = make(values()).detach(), make(values().to("managed")).detach()
        for location in ("managed", "managed:0", torch.device("managed")):
            assert_same(read(plain, location), plain)
        for location in ("cpu", torch.device("cpu"), {"managed:0": "cpu"}, lambda storage, _: storage):
            loaded = read(managed, location)
            assert loaded.device.type == "cpu" and torch.equal(loaded.to_dense(), plain.to_dense())
    with pytest.raises(RuntimeError, match="device_count"):
        read(torch.ones(2), "managed:1")


@in_both_formats
def test_files_on_disk(form: Way, tmp_path: Path):
    path = tmp_path / "x.pt"
    x = values().to("managed")
    torch.save({"x": x, "row": x[3]}, path, _use_new_zipfile_serialization=form is saved)
    loaded = torch.load(path)
    assert_same(loaded["x"], values())
    loaded["x"].zero_()
    assert not loaded["row"].any()
    if form is saved:
        assert_same(torch.load(path, mmap=True)["row"], values()[3])


def test_storages_are_copied_and_written():
    x = values().to("managed")
    storage = x.untyped_storage()
    twin = copy.deepcopy(storage)
    assert twin.device.type == "managed" and bytes(twin[:16]) == bytes(values().untyped_storage()[:16])
    assert pickle.loads(pickle.dumps(x.storage())).tolist() == values().flatten().tolist()
    part = storage[4:8]  # Shares the memory.
    part.fill_(0)
    assert x[0, :3].tolist() == [0, 0, 2]
    with pytest.raises(RuntimeError, match="not resizable"):
        part.resize_(16)


def test_a_tensor_of_the_predecessors_class_keeps_it():
    x = innkeeper.ManagedTensor(torch.ones(2, 2)).as_subclass(innkeeper.ManagedTensor)
    twin = pickle.loads(pickle.dumps(x))
    assert type(twin) is innkeeper.ManagedTensor and twin.tolist() == x.tolist()
