"""How a name of PyTorch's is given another meaning."""

from __future__ import annotations

from typing import Any


def put(owner: Any, **meanings: Any) -> None:
    """Sets the attributes of ``owner``: a module or a class of PyTorch's."""
    for name, meaning in meanings.items():
        setattr(owner, name, meaning)
