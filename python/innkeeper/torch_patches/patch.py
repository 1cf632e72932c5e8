"""How a patch is applied: one function, which refuses a patch that the table does not declare."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

IMPORT = "import innkeeper"
MANAGED_RUN = "innkeeper run --managed"
INDEX_PER_NODE = 'configure(devices="each")'
COMPILE = "the first torch.compile"
DEFAULT_TYPE = "torch.set_default_tensor_type of a CUDA type"


@dataclass(frozen=True)
class Patch:
    """A row of the table: one change to PyTorch, to Python's standard library or to another library.

    Attributes:
        target: a dotted path, ``torch.Tensor.pin``. ``{a,b}`` stands for either name, ``[key]`` for an
            element of a container, ``*`` for any name.
        why: the reason, in one sentence.
        torch_versions: the versions that need it, ``">=2.11"`` or ``">=2.13,<2.15"``. Others are left alone.
        test: the test that fails without it, as pytest names it.
        when: what applies it: an action of the program, or the import of the module of this name.
        upstream: the change to PyTorch or the library that would make it unnecessary.

    """

    target: str
    why: str
    torch_versions: str
    test: str
    when: str = IMPORT
    upstream: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The paths that ``target`` stands for."""
        return tuple(_expanded(self.target))

    def needed_by(self, version: str) -> bool:
        """Whether this version of PyTorch, ``"2.13.0+cpu"``, is one of ``torch_versions``."""
        found = _numbers(version)
        tests = {">=": lambda limit: found >= limit, "<": lambda limit: found < limit}
        for part in self.torch_versions.split(","):
            sign = re.match(r">=|<", part)
            if sign is None:
                raise ValueError(f"torch_versions {self.torch_versions!r} of {self.target}: write >= or <")
            if not tests[sign[0]](_numbers(part)):
                return False
        return True


class Place(NamedTuple):
    """Where a patch puts something that no dotted path of attributes leads to."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


_installed: dict[str, Patch] = {}
_rows: dict[str, Patch] = {}
_globs: list[tuple[str, Patch]] = []


def declare(rows: list[Patch]) -> None:
    """Makes rows known; a path may stand in several, if these are applied at different times."""
    for row in rows:
        for target in row.targets:
            if "*" in target:
                _globs.append((target, row))
            else:
                _rows.setdefault(target, row)


def row_of(target: str) -> Patch:
    """The row that declares a path.

    Raises:
        LookupError: none does.

    """
    row = _rows.get(target)
    if row is None:
        row = next((row for glob, row in _globs if glob == target or matches(target, glob)), None)
    if row is None:
        raise LookupError(f"the table of patches, innkeeper.torch_patches.PATCHES, does not declare {target}")
    return row


def matches(path: str, glob: str) -> bool:
    """Whether a path is one that ``glob`` stands for; brackets mean themselves."""
    return fnmatch.fnmatchcase(path, glob.replace("[", "[[]"))


def apply(target: str, change: Callable[[], object]) -> bool:
    """Calls ``change``, which makes a declared patch, unless this PyTorch needs none. All patches pass here.

    Returns:
        Whether it was called.

    Raises:
        LookupError: the table does not declare the path.

    """
    row = row_of(target)
    if not row.needed_by(sys.modules["torch"].__version__):
        return False
    change()
    _installed[target] = row
    return True


def patch(target: str, make: Callable[[Any], Any], place: Place | None = None) -> bool:
    """Puts ``make(what stands there)`` in the place of ``target``.

    Args:
        target: as in the table. A path that this version lacks is left alone.
        make: gets what stands there as it stands there (a static method, not its function), None where
            nothing does.
        place: where it is, if the path is more than attributes.

    """
    if place is None:
        found = find(target)
        if found is None:
            return False
        owner, name = found
        place = Place(lambda: _standing(owner, name), lambda value: setattr(owner, name, value))
    read, write = place
    return apply(target, lambda: write(make(read())))


def put(target: str, value: Any, place: Place | None = None) -> bool:
    """``patch`` with the new object itself."""
    return patch(target, lambda _: value, place)


def item(mapping: MutableMapping[Any, Any], key: Any) -> Place:
    """An element of a mapping."""
    return Place(lambda: mapping.get(key), lambda value: mapping.__setitem__(key, value))


def cell(function: Any, variable: str) -> Place:
    """A variable that a function has from the one around it."""
    held = function.__closure__[function.__code__.co_freevars.index(variable)]
    return Place(lambda: held.cell_contents, lambda value: setattr(held, "cell_contents", value))


def constants(function: Any) -> Place:
    """The constants of a function's code."""
    return Place(
        lambda: function.__code__.co_consts,
        lambda made: setattr(function, "__code__", function.__code__.replace(co_consts=made)),
    )


def installed() -> dict[str, Patch]:
    """The patches that this process has applied, by their paths, in the order of time."""
    return dict(_installed)


def find(target: str) -> tuple[Any, str] | None:
    """The module or class that a path's last name stands in; None if one of its parts is not there."""
    parts = target.split(".")
    for count in range(len(parts) - 1, 0, -1):
        owner: Any = sys.modules.get(".".join(parts[:count]))
        if owner is not None:
            break
    else:
        return None
    for part in parts[count:-1]:
        owner = getattr(owner, part, None)
        if owner is None:
            return None
    return owner, parts[-1]


def _standing(owner: Any, name: str) -> Any:
    """As it stands in a class or in one of its bases, or in a module."""
    if isinstance(owner, type):
        return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)
    return getattr(owner, name, None)


def _expanded(target: str) -> list[str]:
    group = re.search(r"\{([^{}]*)\}", target)
    if group is None:
        return [target]
    begin, end = target[: group.start()], target[group.end() :]
    return [path for name in group[1].split(",") for path in _expanded(begin + name.strip() + end)]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2])
