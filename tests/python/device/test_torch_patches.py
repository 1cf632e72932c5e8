"""The table of patches: it declares what differs in PyTorch, and each row makes a difference."""

from __future__ import annotations

import json
import re
from typing import Any

import innkeeper
import pytest
from innkeeper import torch_patches
from innkeeper.torch_patches import Patch
from innkeeper.torch_patches.patch import find, matches, row_of
from processes import RunProgram
from repository import ROOT

import torch

PROGRAM = ROOT / "tests/support/python/patched.py"


def test_pytorch_differs_by_what_the_table_declares_and_by_nothing_else(run_python: RunProgram):
    """Before and after the import, in a managed run, and when modules come that patches wait for."""
    imported = run_python(PROGRAM, "modules")
    assert imported.returncode == 0, imported.stderr
    done = run_python(PROGRAM, *json.loads(imported.stdout))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 7 and not any(found.values()), found


PLANTED = """
import torch, sys
sys.path.insert(0, {directory!r})
import library_state, patched
before = library_state.snapshot()
torch.nn.Linear.forward = lambda self, x: x
torch.nn.functional.relu.__code__ = torch.nn.functional.relu6.__code__
torch.nn.modules.module._global_forward_hooks[0] = print
differences = library_state.changed(before, library_state.snapshot())
import innkeeper
print(*patched.undeclared(differences, innkeeper.torch_patches.PATCHES))
print(len(patched.without(differences, innkeeper.torch_patches.PATCHES)) > 100)
"""


def test_the_comparison_sees_attributes_code_and_containers(run_python: RunProgram):
    done = run_python("-c", PLANTED.format(directory=str(PROGRAM.parent)))
    assert done.stdout.splitlines() == [
        "torch.nn.functional.relu.__code__ torch.nn.modules.linear.Linear.forward "
        "torch.nn.modules.module._global_forward_hooks[0]",
        "True",
    ], done.stderr


@pytest.mark.parametrize("row", torch_patches.PATCHES, ids=lambda row: row.target[:60])
def test_a_row_has_its_reason_its_versions_and_its_test(row: Patch):
    assert row.why.endswith(".") and row.when and row.needed_by(torch.__version__)
    file, _, name = row.test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), row.test


def test_a_patch_that_is_not_declared_is_refused():
    called: list[int] = []
    with pytest.raises(LookupError, match=r"does not declare torch\.nn\.Linear\.forward"):
        torch_patches.patch("torch.nn.Linear.forward", lambda own: called.append(1))
    with pytest.raises(LookupError, match="does not declare"):
        torch_patches.apply("torch.nn.Linear.forward", lambda: called.append(1))
    assert not called


def test_a_path_that_this_version_lacks_is_left_alone():
    assert find("torch.nn.NoSuchModule.forward") is None and find("nowhere.at_all") is None
    assert find("torch.nn.parallel.data_parallel") == (torch.nn.parallel, "data_parallel")


def test_versions():
    def row(versions: str) -> Patch:
        return Patch("torch.x", "Why.", versions, "test")

    assert row(">=2.11").needed_by("2.11.0+cpu") and row(">=2.11").needed_by("3.0")
    assert not row(">=2.13").needed_by("2.12.1") and not row(">=2.11,<2.14").needed_by("2.14.0a0+git1")
    with pytest.raises(ValueError, match="write >= or <"):
        row("2.11").needed_by("2.11")


def test_targets_expand_and_brackets_mean_themselves():
    row = Patch("torch.{a,b}.{c,d[K]}", "Why.", ">=2.11", "test")
    assert row.targets == ("torch.a.c", "torch.a.d[K]", "torch.b.c", "torch.b.d[K]")
    assert matches("torch.a.b[K]", "torch.*[K]") and not matches("torch.a.bK", "torch.*[K]")


def test_what_is_installed_can_be_asked():
    installed = innkeeper.torch_patches.installed()
    assert installed["torch.Tensor.pin"] is row_of("torch.Tensor.pin")
    assert "torch.compile" not in installed  # A managed run's patch.
    installed.clear()
    assert innkeeper.torch_patches.installed()


def test_the_table_is_printed(run_python: RunProgram):
    def listed(*words: str) -> str:
        done = run_python("-m", "innkeeper.torch_patches", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    document: dict[str, Any] = json.loads(listed("--json"))
    assert document["schema"] == 1 and document["torch"] == torch.__version__
    assert [row["target"] for row in document["patches"]] == [row.target for row in torch_patches.PATCHES]
    by_target = {row["target"]: row for row in document["patches"]}
    assert by_target["torch.Tensor.__dlpack_device__"]["applied"]
    assert not by_target["torch.cuda.*"]["applied"]
    text = listed()
    assert "applied torch.Tensor.__dlpack_device__\n" in text and "waits   torch.cuda.*\n" in text
    assert run_python("-m", "innkeeper.torch_patches", "--wrong").returncode == 2
