"""Sizes as a program writes them: a number of bytes, or a text such as ``"8GiB"``."""

from __future__ import annotations

from innkeeper import _C

Size = int | str
"""Bytes, or a number with ``B``, ``KiB``, ``MiB``, ``GiB`` or ``TiB``: ``"8GiB"``, ``"1.5 GiB"``."""


def bytes_of(size: Size, name: str) -> int:
    """The bytes of a size. A text is read as in ``INNKEEPER_NODES``, by the same function.

    Args:
        size: as ``Size`` says.
        name: the argument's name, for errors.

    Raises:
        TypeError: it is neither an int nor a str.
        ValueError: the text is no size.

    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    if not isinstance(size, str):
        raise TypeError(f'{name} is an int, a number of bytes such as 8 << 30, or "8GiB"; got {size!r}')
    return _C.parse_size(size, name)
