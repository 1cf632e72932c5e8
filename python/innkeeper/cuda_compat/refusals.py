"""Functions that cannot be mapped: they say so in one line, with the script's own line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from innkeeper.cuda_compat.put import put
from innkeeper.managed_device import table
from innkeeper.script import here

_POINTERS = (
    "a managed tensor's memory moves, so it has no address; innkeeper.resident(x) gives the real tensor"
)
_MORE = {
    "cudart": "there is no CUDA runtime of the script's own; innkeeper.resident(x) gives the real tensor",
}
_ALLOWED = {"get_device_capability", "set_sync_debug_mode", "get_sync_debug_mode"}


class _Refused(type):
    """A class, for names that stand in annotations: raises when it is called or asked for an attribute."""

    reason: str

    def _refuse(cls) -> NoReturn:
        raise RuntimeError(f"{here()}: {cls.__name__} cannot run on the managed device: {cls.reason}")

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raises the reason."""
        cls._refuse()

    def __getattr__(cls, attribute: str) -> NoReturn:
        if attribute.startswith("__"):  # Python's own questions, such as copy's and inspect's
            raise AttributeError(attribute)
        cls._refuse()


def refused(name: str, reason: str) -> type:
    """The replacement of a name that cannot be mapped."""
    return _Refused(name, (), {"reason": reason})


def install() -> None:
    """Refuses them. Once."""
    for name, reason in (table.REFUSED | _MORE).items():
        if name not in _ALLOWED:
            put(torch.cuda, **{name: refused(f"torch.cuda.{name}", reason)})
    put(torch.Tensor, __cuda_array_interface__=property(_no_array_interface))
    import torch.utils.cpp_extension as extensions

    for name, sources in (("load", 1), ("load_inline", 2)):
        put(extensions, **{name: _compiling(name, getattr(extensions, name), sources)})


def _no_array_interface(self: torch.Tensor) -> NoReturn:
    if self.device.type == "cuda":
        raise AttributeError(f"{here()}: __cuda_array_interface__ cannot be given: {_POINTERS}")
    raise AttributeError("Can't get __cuda_array_interface__ on non-CUDA tensor")


def _compiling(name: str, original: Callable[..., Any], place: int) -> Callable[..., Any]:
    """``torch.utils.cpp_extension``'s functions, which may be given CUDA's sources."""

    def compiling(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get("sources", ())
        files = [given] if isinstance(given, str) else list(given)
        cuda = any(str(file).endswith((".cu", ".cuh")) for file in files) if name == "load" else False
        if (
            cuda
            or kwargs.get("cuda_sources")
            or kwargs.get("with_cuda")
            or (name == "load_inline" and len(args) > 2)
        ):
            reason = f"its kernels read addresses, and {_POINTERS}"
            raise RuntimeError(f"{here()}: {name} of CUDA sources cannot run on the managed device: {reason}")
        return original(*args, **kwargs)

    return compiling
