"""Changes to modules of libraries, made after their import, or at once if they are imported already."""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from types import ModuleType
from typing import Any

from innkeeper.torch_patches.patch import Place, apply, constants, patch

Adapt = Callable[[ModuleType], None]


def after_import(wanted: Callable[[str], Adapt | None]) -> None:
    """Changes modules right after their code has run, and modules that are imported already at once.

    Args:
        wanted: returns the function to call with the module of a name, or None. It is called for each module
            that is imported, and also for a mere query whether there is such a module.

    """
    for name in list(sys.modules):
        if (change := wanted(name)) is not None:
            change(sys.modules[name])
    apply(f"sys.meta_path[{__name__}._Finder]", lambda: sys.meta_path.insert(0, _Finder(wanted)))


class _Finder:
    def __init__(self, wanted: Callable[[str], Adapt | None]) -> None:
        self._wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = self._wanted(name)
        if change is None:
            return None
        spec = _found_by_others(self, name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, change)
        return spec


def _found_by_others(
    finder: _Finder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    for other in sys.meta_path:
        if other is not finder and (spec := other.find_spec(name, path, target)) is not None:
            return spec
    return None


class _Loader(Loader):
    """The module's own, and then the adapter."""

    def __init__(self, own: Any, change: Adapt) -> None:
        self._own = own
        self._change = change

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._change(module)


def replace(module: ModuleType, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces ``name`` by ``make`` of its value, there and in every module that imported it from there.

    A library that has no such name (another version) stays as it is.
    """
    own = getattr(module, name, None)
    if own is None:
        return

    def everywhere(made: Any) -> None:
        for other in list(sys.modules.values()):
            if getattr(other, "__dict__", {}).get(name) is own:
                setattr(other, name, made)

    patch(f"{module.__name__}.{name}", make, Place(lambda: own, everywhere))


def replace_method(module: ModuleType, path: str, make: Callable[[Any], Any]) -> None:
    """The same for ``"Class.method"``. ``make`` gets the class's attribute, unbound."""
    owner, name, own = _method(module, path)
    if own is not None:
        place = Place(lambda: own, functools.partial(setattr, owner, name))
        patch(f"{module.__name__}.{path}", make, place)


def add_to_lists(module: ModuleType, path: str, device: str, beside: str = "xpu") -> None:
    """Adds a device's type to the constant tuples in the code of ``"Class.method"`` that list ``beside``."""
    _, _, own = _method(module, path)
    function = getattr(own, "__func__", own)  # the function of a static method
    code = getattr(function, "__code__", None)
    if code is None:
        return

    def listing(all_constants: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            (*constant, device)
            if isinstance(constant, tuple) and beside in constant and device not in constant
            else constant
            for constant in all_constants
        )

    if listing(code.co_consts) != code.co_consts:
        patch(f"{module.__name__}.{path}.__code__", listing, constants(function))


def _method(module: ModuleType, path: str) -> tuple[Any, str, Any]:
    """The class, the method's name and the class's attribute; None if a version has none."""
    owner_name, _, name = path.partition(".")
    owner = getattr(module, owner_name, None)
    return owner, name, None if owner is None else inspect.getattr_static(owner, name, None)
