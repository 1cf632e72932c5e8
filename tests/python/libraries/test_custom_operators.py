"""Operators of libraries (torch.library): the kernel that runs, and the actions allowed to kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import Any

import innkeeper
import pytest
from processes import RunProgram

import torch
from torch import Tensor

RAN: list[str] = []  # Names of the kernels that ran, and the devices of their operands.


def note(kernel: str, x: Tensor) -> Tensor:
    RAN.append(f"{kernel}, {x.device.type}")
    return x


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    RAN.clear()
    yield
    RAN.clear()


@torch.library.custom_op("innkeeper_test::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return note("general", x) * 0.25


@torch.library.custom_op("innkeeper_test::tripled", mutates_args=("x",))
def tripled(x: Tensor) -> None:
    note("general", x).mul_(9)


def test_one_with_a_general_kernel_runs_the_one_for_the_device_behind():
    halved(torch.ones(4, 8, device="managed"))
    assert RAN == ["general, managed"]

    @halved.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        return note("the CPU's", x) * 0.5

    @tripled.register_kernel("cpu")
    def _(x: Tensor) -> None:
        note("the CPU's", x).mul_(3)

    halved.register_autograd(lambda context, gradient: gradient * 0.5)

    def run(device: str) -> list[Tensor]:
        RAN.clear()
        x = torch.arange(32.0).view(4, 8).to(device).requires_grad_()
        y = halved(x)
        y.square().sum().backward()
        z = y.detach().clone()
        tripled(z)
        assert RAN == ["the CPU's, cpu"] * 2
        return [t.detach().cpu() for t in (y, x.grad, z)]

    for found, expected in zip(run("managed"), run("cpu"), strict=True):
        assert torch.equal(found, expected)


EXPLICIT = "CompositeExplicitAutograd"


def general_and_cpu(library: torch.library.Library, name: str, key: str = EXPLICIT) -> None:
    library.impl(name, lambda x, *others: note("general", x).clone(), key)
    library.impl(name, lambda x, *others: note("the CPU's", x).clone(), "CPU")


FORMS = {  # Namespace, name, key of the general kernel.
    "plain": ("taken_plain", "f", EXPLICIT),
    "an overload": ("taken_overload", "f.of_one", EXPLICIT),
    "a factory's name": ("taken_name", "gelu_like", EXPLICIT),
    "composed, without a key": ("taken_composed", "f", ""),
    "a dot in the namespace": ("taken.dot", "f", EXPLICIT),
}


@pytest.mark.parametrize("early", [False, True], ids=["", "kernels before the schema"])
@pytest.mark.parametrize("form", FORMS)
def test_however_it_is_written(form: str, early: bool):
    space, name, key = FORMS[form]
    space += "_early" if early else ""
    kernels = torch.library.Library(space, "IMPL")
    if early:
        general_and_cpu(kernels, name, key)
    library = torch.library.Library(space, "DEF")
    library.define(f"{name}(Tensor x) -> Tensor")
    if not early:
        general_and_cpu(kernels, name, key)
    getattr(getattr(torch.ops, space), name.partition(".")[0])(torch.ones(3, device="managed"))
    # """In a PyTorch built with CUDA, a composed operator without a kernel for CUDA runs as its parts."""
    is_its_parts = key == "" and torch.version.cuda is not None
    assert (["general, managed"] if is_its_parts else ["the CPU's, cpu"]) == RAN


def test_views_are_views():
    library = torch.library.Library("taken_views", "FRAGMENT")
    library.define("first(Tensor(a) x) -> Tensor(a)")
    library.impl("first", lambda x: note("general", x)[:1], EXPLICIT)
    library.impl("first", lambda x: note("the CPU's", x)[:1], "CPU")
    x = torch.zeros(3, device="managed")
    torch.ops.taken_views.first(x).fill_(5)
    assert RAN == ["the CPU's, cpu"] and x.tolist() == [5, 0, 0]


@pytest.mark.parametrize("kind", ["Tensor[][]", "Any", "Dict(str, Tensor)"])
def test_tensors_that_are_not_found_in_the_arguments_go_the_general_way(kind: str):
    name = "taken_" + "".join(filter(str.isalpha, kind)).lower()
    library = torch.library.Library(name, "FRAGMENT")
    library.define(f"f(Tensor x, {kind} y) -> Tensor")
    general_and_cpu(library, "f")
    x = torch.ones(3, device="managed")
    given: dict[str, Any] = {"Tensor[][]": [[x], [x]], "Any": x, "Dict(str, Tensor)": {"x": x}}
    getattr(torch.ops, name).f(x, given[kind])
    assert RAN == ["general, managed"]


def test_one_that_is_defined_again():
    x = torch.arange(3.0, device="managed")
    for factor in (2, 3):
        library = torch.library.Library("innkeeper_anew", "DEF")
        library.define("scaled(Tensor x) -> Tensor" if factor == 2 else "scaled(Tensor x, int by) -> Tensor")
        library.impl("scaled", lambda x, by=0: x * 7, EXPLICIT)
        library.impl("scaled", lambda x, by=2: x * by, "CPU")
        given = (x,) if factor == 2 else (x, factor)
        assert torch.equal(torch.ops.innkeeper_anew.scaled(*given), x * factor)
        library._destroy()
        del library


def _import_compiled(spec: ModuleSpec) -> None:
    assert isinstance(spec.loader, ExtensionFileLoader)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _load_library(spec: ModuleSpec) -> None:
    torch.ops.load_library(spec.origin)


@pytest.mark.parametrize("load", [_import_compiled, _load_library])
def test_those_of_a_compiled_library_that_is_loaded_later(load: Callable[[ModuleSpec], None]):
    name = f"innkeeper{load.__name__}"
    library_class: Any = torch.library.Library
    define, impl = library_class.define.__wrapped__, library_class.impl.__wrapped__
    # Registers as C++ does, without a notice to Innkeeper.
    with torch.library._scoped_library(name, "DEF") as library:
        define(library, "which(Tensor x) -> int")
        impl(library, "which", lambda x: 0, "CompositeExplicitAutograd")
        impl(library, "which", lambda x: 1 if x.device.type == "cpu" else 2, "CPU")
        x = torch.ones(3, device="managed")
        assert getattr(torch.ops, name).which(x) == 0
        spec = importlib.util.find_spec("_queue")
        assert spec is not None
        load(spec)
        assert getattr(torch.ops, name).which(x) == 1


EARLIER = """
import torch
@torch.library.custom_op("earlier::which", mutates_args=())
def which(x: torch.Tensor) -> int:
    return 0
which.register_kernel("cpu")(lambda x: 1 if x.device.type == "cpu" else 2)
@torch.library.custom_op("earlier::alone", mutates_args=())
def alone(x: torch.Tensor) -> int:
    return 3 if x.device.type == "managed" else 4
import innkeeper
x = torch.ones(3, device="managed")
print(which(x), alone(x))
"""


def test_those_that_were_there_before_the_import(run_python: RunProgram):
    done = run_python("-c", EARLIER)
    assert done.stdout == "1 3\n", done.stderr


@pytest.mark.parametrize("general", [True, False], ids=["with a general kernel", "the CPU's alone"])
def test_the_host_runs_it_where_its_result_does_not_fit(
    general: bool, configure: Callable[[str], None]
) -> None:
    configure("sim:1x1MiB,host:64MiB")
    space = f"large_{general}".lower()
    library = torch.library.Library(space, "FRAGMENT")
    library.define("spread(Tensor x, int times) -> Tensor")
    if general:
        library.impl("spread", lambda x, times: x.repeat(times), EXPLICIT)
    library.impl("spread", lambda x, times: x.repeat(times), "CPU")
    x = torch.arange(256.0, device="managed")
    y = getattr(torch.ops, space).spread(x, 2048)
    assert innkeeper.where(y) == ["host"] and innkeeper.stats()["nodes"]["host"]["ops"] > 0
    assert torch.equal(y.cpu(), torch.arange(256.0).repeat(2048))


@pytest.mark.parametrize("change", ["set_", "data"])
@pytest.mark.parametrize("lists", [False, True], ids=["a tensor", "a list"])
def test_a_kernel_may_have_its_argument_show_other_memory(change: str, lists: bool):
    library = torch.library.Library(f"other_{change}_{lists}".lower(), "FRAGMENT")
    library.define("take(Tensor(a!)[] x) -> Tensor" if lists else "take(Tensor(a!) x) -> Tensor")

    def take(given: Any) -> Tensor:
        x = given[0] if lists else given
        made = torch.full((100_000,), 3.0)
        if change == "set_":
            x.set_(made)
        else:
            x.data = made
        return made[:2].clone()

    library.impl("take", take, "CPU")
    x = torch.zeros(3, device="managed")
    view = x[:2]
    others = [torch.full((1000,), float(i), device="managed") for i in range(20)]
    result = getattr(torch.ops, f"other_{change}_{lists}".lower()).take([x] if lists else x)
    assert result.tolist() == [3, 3] and view.tolist() == [0, 0]
    assert x.shape == (100_000,) and x.untyped_storage().nbytes() == 400_000 and x.sum().item() == 300_000
    x.fill_(2)
    innkeeper.evict(x)
    assert x.sum().item() == 200_000
    assert all(t.min().item() == i == t.max().item() for i, t in enumerate(others))
