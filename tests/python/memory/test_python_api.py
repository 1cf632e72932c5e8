"""The Python interface as a whole: sizes, switches, nodes as objects, and settings that can be read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import innkeeper
import pytest
from innkeeper import Node
from innkeeper.sizes import bytes_of
from processes import NODES, RunProgram
from repository import ROOT

import torch

# PyTorch's own signatures, which its programs call by position.
OF_PYTORCH = {"DataParallel", "ManagedModule", "ManagedTensor"}
MIB = 1 << 20


def public_functions() -> Iterator[tuple[str, Any]]:
    for name in innkeeper.__all__:
        value = getattr(innkeeper, name)
        if inspect.isclass(value) and name not in OF_PYTORCH:
            for member, function in inspect.getmembers(value, inspect.isfunction):
                if not member.startswith("_") or member == "__init__":
                    yield f"{name}.{member}", function
        elif inspect.isfunction(value):
            yield name, value


def test_switches_are_given_by_name():
    by_position = [
        f"{name}({parameter.name})"
        for name, function in public_functions()
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and "bool" in str(parameter.annotation)
    ]
    assert by_position == []
    x = torch.ones(2, device="managed")
    for call in (
        lambda: innkeeper.resident(x, "host", True),  # type: ignore[call-overload]
        lambda: innkeeper.manager().find_device(4, True),  # type: ignore[misc]
        lambda: innkeeper.ManagedTensor.wrap(x, True),  # type: ignore[misc]
        lambda: innkeeper.lease(1, MIB, True),  # type: ignore[misc]
        lambda: innkeeper.auto_choice(0, None, 1, MIB, True),  # type: ignore[misc]
    ):
        with pytest.raises(TypeError, match="positional argument"):
            call()


@pytest.mark.parametrize(
    ("text", "count"),
    [("0B", 0), ("12 B", 12), ("1KiB", 1024), ("1.5 MiB", 3 << 19), ("8GiB", 8 << 30), (" 2TiB ", 2 << 40)],
)
def test_sizes(text: str, count: int):
    assert bytes_of(text, "memory") == count and bytes_of(count, "memory") == count


@pytest.mark.parametrize("text", ["", "8", "8GB", "8G", "-1B", "GiB", "1e3B", "0x1B", "1.B", "8GiB2"])
def test_what_is_no_size_is_named(text: str):
    expected = f'memory: size "{text}" .*, expected a number and one of B, KiB, MiB, GiB, TiB, as in 64MiB'
    with pytest.raises(ValueError, match=expected):
        bytes_of(text, "memory")


def test_a_size_that_cannot_be_counted_is_refused():
    assert bytes_of("8388607.9TiB", "memory") < 1 << 63
    with pytest.raises(ValueError, match='memory: size "8388608TiB" is too large, at most 8388607TiB'):
        bytes_of("8388608TiB", "memory")


@pytest.mark.parametrize("value", [1.5, None, True, [1]])
def test_what_is_neither_a_number_nor_a_text_is_refused(value: Any):
    with pytest.raises(TypeError, match="memory is an int, a number of bytes such as 8 << 30"):
        bytes_of(value, "memory")


def test_sizes_are_taken_where_bytes_are():
    manager = innkeeper.manager()
    node = next(name for name, node in manager.nodes.items() if node.computes)
    before = manager.budget(node)
    manager.set_budget(node, "1MiB")
    assert manager.budget(node) == MIB
    manager.set_budget(node, before)
    assert manager.find_device("4KiB") == manager.find_device(4096)
    with innkeeper.experiment("sized", memory="2MiB") as name:
        assert name == "sized"
    with pytest.raises(ValueError, match='memory: size "8GB" has the unknown unit'):
        innkeeper.lease(memory="8GB")
    with pytest.raises(ValueError, match='memory: size "8GB" has the unknown unit'):
        innkeeper.auto_choice(memory="8GB")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Node("auto"), "auto"),
        (Node("sim", "64MiB", count=2), f"sim:2x{64 * MIB}B"),
        (Node("sim", 4096), "sim:1x4096B"),
        (Node("cuda", index=1), "cuda:1"),
        (Node("cuda", "1GiB", index=0), f"cuda:0:{1 << 30}B"),
        (Node("host"), "host"),
        (Node("disk", "1MiB", path="/tmp"), f"disk:/tmp:{MIB}B"),
    ],
)
def test_a_node_is_an_item_of_the_variable(node: Node, text: str):
    assert str(node) == text


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Node("host", count=2), "count is for simulated GPUs"),
        (lambda: Node("sim", 1, index=0), "index is for GPUs"),
        (lambda: Node("disk", 1), "path is for kind 'disk', which needs one"),
        (lambda: Node("host", 1, path="/tmp"), "path is for kind 'disk'"),
    ],
)
def test_a_node_that_makes_no_sense_is_refused(make: Callable[[], Node], why: str):
    with pytest.raises(ValueError, match=why):
        make()


def test_nodes_are_configured_as_objects(run_python: RunProgram):
    code = """
import innkeeper
from innkeeper import Node
innkeeper.configure([Node("sim", "16MiB", count=2), "host:1GiB"])
print({name: node.budget for name, node in innkeeper.manager().nodes.items()})
innkeeper.configure(Node("sim", "8MiB"))
print([name for name in innkeeper.manager().nodes])
for wrong in (7, [7], {"sim": 1}):
    try:
        innkeeper.configure(wrong)
    except TypeError as error:
        print(error)
"""
    done = run_python("-c", code, nodes="auto")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{{'sim:0': {16 * MIB}, 'sim:1': {16 * MIB}, 'host': {1 << 30}}}"
    assert lines[1] == "['sim:0', 'host']"
    assert len(lines) == 5 and all("an innkeeper.Node or a list of these" in line for line in lines[2:])


@pytest.mark.parametrize("name", ["planning", "recompute"])
def test_settings_are_read_where_they_are_set(name: str):
    manager = innkeeper.manager()
    before = getattr(manager, name)
    for value in (not before, before):
        setattr(manager, name, value)
        assert getattr(manager, name) is value
    assert isinstance(manager.growth, bool)


def test_configure_and_the_manager_say_the_same(run_python: RunProgram):
    code = (
        "import innkeeper; m = innkeeper.manager(); print(m.growth, m.planning, m.recompute)\n"
        f"innkeeper.configure({NODES!r}, growth=False, planning=False, recompute=False)\n"
        "print(m.growth, m.planning, m.recompute)"
    )
    done = run_python("-c", code)
    assert done.stdout == "True True True\nFalse False False\n", done.stderr


def test_memory_of_a_node():
    x = torch.ones(1000, device="managed")
    nodes = innkeeper.stats().nodes
    assert {name: innkeeper.memory_allocated(name) for name in nodes} == {
        name: node.resident for name, node in nodes.items()
    }
    (there,) = innkeeper.where(x)
    assert innkeeper.memory_allocated(there) >= x.nbytes and innkeeper.memory_allocated() >= x.nbytes
    with pytest.raises(ValueError, match="there is no node 'sim:99'; the nodes are"):
        innkeeper.memory_allocated("sim:99")


def test_memory_of_a_node_does_not_start_the_device(run_python: RunProgram):
    code = (
        "import innkeeper; from innkeeper import _C; print(innkeeper.memory_allocated('host'), _C.started())"
    )
    assert run_python("-c", code).stdout == "0 False\n"


def test_statistics_of_a_block():
    x = torch.ones(1000, device="managed")
    before = innkeeper.stats().ops
    with innkeeper.statistics() as whole:
        with innkeeper.statistics() as part:
            x + 1
            assert part.ops == part["ops"] == 1
        x + 2
    x + 3
    assert (part.ops, whole.ops, whole["ops"]) == (1, 2, 2)
    assert innkeeper.stats().ops == before + 3
    assert sum(node.ops for node in whole.nodes.values()) == 2
    assert whole.stats.nodes.keys() == innkeeper.stats().nodes.keys() and "ops=2" in repr(whole)
    assert whole.period is None and whole.bytes_bound is None
    for node in whole.nodes.values():
        assert node.peak <= node.budget


def test_statistics_that_have_not_begun():
    with pytest.raises(RuntimeError, match="has not begun"):
        innkeeper.statistics().ops  # noqa: B018
    assert repr(innkeeper.statistics()) == "<innkeeper.statistics: not begun>"


def test_the_page_names_what_there_is():
    rows = re.findall(r"^\| `(\w+)", (ROOT / "docs" / "python.md").read_text(), re.MULTILINE)
    assert len(rows) >= 7 and set(rows) <= set(innkeeper.__all__)
