"""Sizes as a program writes them: a number of bytes, or a text such as ``"8GiB"``."""

from __future__ import annotations

import re

Size = int | str
"""Bytes, or a number with ``B``, ``KiB``, ``MiB``, ``GiB`` or ``TiB``: ``"8GiB"``, ``"1.5 GiB"``."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
"""Each is 1,024 times the one before."""

_TEXT = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(UNITS)})\s*")


def bytes_of(size: Size, name: str) -> int:
    """The bytes of a size.

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
    found = _TEXT.fullmatch(size)
    if found is None:
        raise ValueError(f'{name} is {size!r}: expected a number with B, KiB, MiB, GiB or TiB, as in "8GiB"')
    number, unit = found.groups()
    whole, _, part = number.partition(".")
    return (int(whole + part) << 10 * UNITS.index(unit)) // 10 ** len(part)
