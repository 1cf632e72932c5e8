"""The declared patches and the real differences: run in a process of its own by test_torch_patches.py.

Arguments: ``modules`` prints what ``import innkeeper`` imports besides. Otherwise modules to import first, so
that their import is no difference. Prints a JSON object: differences that the table lacks, and rows without.
"""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

import library_state
import torch.utils._device

import torch

warnings.simplefilter("ignore")  # Deprecated modules warn when they are looked at.


def main(words: list[str]) -> None:
    before = set(sys.modules)
    if words == ["modules"]:
        install()
        print(json.dumps([name for name in sys.modules if name not in before and "innkeeper" not in name]))
        return
    for name in words:
        with suppress(ImportError):  # torch.managed
            importlib.import_module(name)
    sysconfig.get_config_vars()  # It is made at the first look.
    first = library_state.snapshot()
    import innkeeper
    from innkeeper.torch_patches.patch import IMPORT, INDEX_PER_NODE, MANAGED_RUN

    second = library_state.snapshot()
    install()
    third = library_state.snapshot()
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    fourth = library_state.snapshot()
    torch.set_default_tensor_type(torch.FloatTensor)
    at_import = library_state.changed(first, second)
    in_run = library_state.changed(second, third)
    by_type = library_state.changed(third, fourth)
    by_type.pop("torch.utils._device.CURRENT_DEVICE")  # PyTorch's own: its default device
    rows = innkeeper.torch_patches.PATCHES
    imported = [row for row in rows if row.when == IMPORT]
    run = [row for row in rows if row.when in (MANAGED_RUN, INDEX_PER_NODE)]
    later = [row for row in rows if row not in imported and row not in run]
    found = {
        "import, undeclared": undeclared(at_import, imported),
        "import, no difference": without(at_import, imported),
        "run, undeclared": undeclared(in_run, run),
        "run, no difference": without(in_run, run),
        "default type, undeclared": undeclared(by_type, later),
        "later, not applied": not_applied(later),
        "later, undeclared": undeclared(ours(), rows),
    }
    print(json.dumps(found, indent=1))


def install() -> None:
    import innkeeper  # noqa: F401  (registers the device)
    from innkeeper import cuda_compat

    cuda_compat.install()


def canonical(target: str) -> str:
    """A class's own path: ``torch.nn.Module.managed`` is ``torch.nn.modules.module.Module.managed``."""
    from innkeeper.torch_patches.patch import find

    path, bracket, element = target.partition("[")
    path, code, rest = path.partition(".__code__")
    found = find(path) if "*" not in path else None
    if found is not None and isinstance(found[0], type):
        path = f"{found[0].__module__}.{found[0].__qualname__}.{found[1]}"
    return path + code + rest + bracket + element


def undeclared(differences: dict[str, Any], rows: Iterable[Any]) -> list[str]:
    """The paths that no row has, and whose value stands at no path that one has."""
    from innkeeper.torch_patches.patch import matches

    targets = [canonical(target) for row in rows for target in row.targets]
    declared = {path for path in differences if any(matches(path, target) for target in targets)}
    values = {id(function_of(differences[path])) for path in declared if differences[path] is not None}
    return sorted(
        path
        for path in differences
        if path not in declared and id(function_of(differences[path])) not in values
    )


def function_of(value: Any) -> Any:
    return value.__func__ if type(value) in (staticmethod, classmethod) else value


def without(differences: dict[str, Any], rows: Iterable[Any]) -> list[str]:
    from innkeeper.torch_patches.patch import matches

    targets = {canonical(target): row for row in rows for target in row.targets}
    version = torch.__version__
    return sorted(
        target
        for target, row in targets.items()
        if row.needed_by(version) and not any(matches(path, target) for path in differences)
    )


def not_applied(rows: Iterable[Any]) -> list[str]:
    """The rows that wait for an event and did not come after it."""
    from innkeeper import torch_patches
    from innkeeper.inductor import codegen, labels
    from innkeeper.torch_patches.patch import matches

    with codegen.writing(labels.HOSTS):
        pass
    missing = []
    for row in rows:
        library = row.when.partition(" ")[0].partition(",")[0]
        is_module = library == row.when or "," in row.when
        if is_module:
            try:
                importlib.import_module(library)
            except ImportError:
                continue  # It is not installed, or another version of it is.
        applied = torch_patches.installed()
        if not any(target == path or matches(path, target) for target in row.targets for path in applied):
            missing.append(row.target)
    return missing


def ours() -> dict[str, Any]:
    """Functions of the package's that stand in other libraries now."""
    import innkeeper

    directory = str(Path(innkeeper.__file__).parent)
    found = {}
    for path, value in library_state.snapshot().paths.items():
        function = function_of(value)
        if type(function) is FunctionType and function.__code__.co_filename.startswith(directory):
            found[path] = value
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
