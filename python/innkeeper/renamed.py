"""Former public names: a use of one is refused with a line that says the present one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def arguments_renamed(**former: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Has a function refuse former names of its keyword arguments with TypeError.

    Args:
        former: former name to present name.

    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in former.keys() & kwargs.keys():
                raise TypeError(f"{function.__name__}(): {name} is called {former[name]} now")
            return function(*args, **kwargs)

        return checked

    return decorate
