"""How a name of PyTorch's is given another meaning."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from innkeeper.torch_patches.patch import Place
from innkeeper.torch_patches.patch import put as put_declared


def put(owner: Any, **meanings: Any) -> None:
    """Sets the attributes of ``owner``: a module or a class that the table of patches has rows for."""
    path = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    for name, meaning in meanings.items():
        if path.startswith("innkeeper."):  # The package's own attribute is no patch.
            setattr(owner, name, meaning)
            continue
        place = Place(lambda: None, functools.partial(setattr, owner, name))
        put_declared(f"{path}.{name}", meaning, place)
