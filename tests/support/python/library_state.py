"""The state of the loaded libraries that a patch can change: what two snapshots of it differ in."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import torch

OURS = "innkeeper"
_DEEP = {
    "torch",
    "copyreg",
    "multiprocessing",
    "accelerate",
    "lightning",
    "lightning_fabric",
    "pytorch_lightning",
}
_LAZY = ("torch.ops.", "torch.classes.")  # Modules of operators, which PyTorch makes as they are asked for.
_OWN_BOOKS = {  # Attributes that Python itself writes.
    "__builtins__",
    "__dict__",
    "__weakref__",
    "__abstractmethods__",
    "_abc_impl",
    "__annotations_cache__",
    "__annotations__",
    "__static_attributes__",
    "__firstlineno__",
    "__warningregistry__",
    "__path__",
    "__spec__",
    "__loader__",
}
_KERNELS = ("py_kernels", "python_key_table", "non_fallthrough_keys")  # Tables of a higher-order operator.


@dataclass
class State:
    """A snapshot. The values are kept alive, so two that are the same object have not changed between."""

    paths: dict[str, Any] = field(default_factory=dict)
    """By dotted path: ``torch.Tensor.pin``, ``torch._ops._NAMES[key]``."""
    functions: dict[tuple[int, str], tuple[str, Any]] = field(default_factory=dict)
    """By a function and the part of it, ``__code__`` or ``__closure__[name]``: its path, and the part."""


def snapshot() -> State:
    """Each attribute of a loaded module or class, each container's element, each function's code and closure.

    Also the dispatcher's kernels, the finders of modules and the filters of loggers.
    """
    state = State()
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        own = name.partition(".")[0] in (OURS, "__main__", "__mp_main__") or name == "torch.managed"
        if isinstance(module, ModuleType) and not own and not name.startswith(_LAZY):
            _attributes(state, seen, name, module)
            state.paths[f"type({name})"] = type(module)
    for finder in sys.meta_path:
        kind = finder if isinstance(finder, type) else type(finder)
        state.paths[f"sys.meta_path[{kind.__module__}.{kind.__qualname__}]"] = kind
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] != OURS:
            state.paths[f"logging.getLogger({name}).filters"] = len(logger.filters)
    for key in torch._C.DispatchKey.__members__:
        with suppress(RuntimeError):  # The enumeration has marks of ranges, which no kernel can have.
            for operator in torch._C._dispatch_get_registrations_for_dispatch_key(key):
                state.paths[f"dispatcher.{key}[{operator}]"] = None
    return state


def _attributes(state: State, seen: set[int], path: str, owner: Any) -> None:
    for name, value in list(vars(owner).items()):
        where = f"{path}.{name}"
        if name in _OWN_BOOKS or (where.startswith(_LAZY) and issubclass(type(value), ModuleType)):
            continue
        state.paths[where] = value
        if issubclass(type(value), ModuleType) or id(value) in seen:
            continue
        seen.add(id(value))
        library = path.partition(".")[0]
        if issubclass(type(value), type):
            if str(value.__module__).partition(".")[0] == library:
                _attributes(state, seen, f"{value.__module__}.{value.__qualname__}", value)
        else:
            _look_at_code(state, where, value)
            if library in _DEEP:
                state.paths.update(_parts(state, where, value))


def _parts(state: State, where: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The state that can change within the same object. Types are read, since proxies lie."""
    kind = type(value)
    if issubclass(kind, dict):
        yield from ((f"{where}[{_named(key)}]", element) for key, element in list(dict.items(value)))
    elif issubclass(kind, (list, tuple)):
        yield from ((f"{where}[{_named(element)}]", element) for element in value)
    elif issubclass(kind, (set, frozenset)):
        yield from ((f"{where}[{_named(element)}]", None) for element in value)
    elif kind.__module__.startswith(("torch._ops", "torch._higher_order_ops", "torch._prims")):
        for name in _KERNELS:
            held = getattr(value, "__dict__", {}).get(name)
            if isinstance(held, dict):
                for key, kernel in list(held.items()):
                    yield f"{where}.{name}[{_named(key)}]", kernel
                    _look_at_code(state, f"{where}.{name}[{_named(key)}]", kernel)
            elif held is not None:
                yield f"{where}.{name}", str(held)


def _look_at_code(state: State, where: str, function: Any) -> None:
    """A function's code and closure, and those of the functions that it wraps."""
    if type(function) in (staticmethod, classmethod):
        function = function.__func__
    while type(function) is FunctionType and (id(function), "__code__") not in state.functions:
        state.functions[id(function), "__code__"] = f"{where}.__code__", function.__code__
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                part = f"__closure__[{name}]"
                state.functions[id(function), part] = f"{where}.{part}", cell.cell_contents
            except ValueError:  # It is empty until the function that has it has run on.
                continue
        function = vars(function).get("__wrapped__")


def _named(key: Any) -> str:
    if isinstance(key, (str, int, float, bytes)):
        return str(key)
    return getattr(key, "__qualname__", None) or getattr(key, "name", None) or f"{type(key).__name__}"


def changed(before: State, after: State) -> dict[str, Any]:
    """The paths whose values are others, or are new or gone, with what stands there now.

    Of a container that is new or another one its elements are not told.
    """
    gone = object()
    found = {}
    for path in before.paths.keys() | after.paths.keys():
        old, new = before.paths.get(path, gone), after.paths.get(path, gone)
        if old is not new and not _same(old, new):
            found[path] = None if new is gone else new
    found = {path: value for path, value in found.items() if not _is_within(path, found)}
    for key, (path, part) in before.functions.items():
        if key in after.functions and after.functions[key][1] is not part:
            found[path] = after.functions[key][1]
    return found


def _is_within(path: str, found: dict[str, Any]) -> bool:
    begins = (
        path[:at] for at in range(1, len(path)) if path[at] == "[" or path.startswith(".py_kernels", at)
    )
    return any(begin in found for begin in begins)


def _same(old: Any, new: Any) -> bool:
    """Stands for objects that each look makes afresh: numbers, texts and descriptors."""
    return type(old) is type(new) and isinstance(old, (str, int, float, bool)) and old == new
