"""A kernel that Inductor wrote for Triton, as an operator. Modules that Inductor writes import this one.

The operator, ``innkeeper::launched(Tensor[] read, Tensor(a!)[] written) -> ()``, is Triton's own launch over
the real tensors of the chosen GPU, on that GPU's stream.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from typing import Any

from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor.codecache import CodeCacheFuture, LambdaFuture
from torch._inductor.runtime.hints import DeviceProperties

import torch
from innkeeper.inductor import labels
from torch import Tensor

_PROPERTIES = re.compile(r"DeviceProperties\([^()]*\)")  # the target GPU in a kernel's source
_calls = threading.local()  # .now: the kernel that this thread launches, and its arguments


def launched_kernel(compiler: Any, name: str, source: str, device_str: str) -> Any:
    """The kernel's replacement: a callable, or a future of one while the compiler runs.

    Args:
        compiler: Inductor's ``AsyncCompile``.
        name: Of the kernel.
        source: In Python, with the GPU for which it is written.
        device_str: That GPU's type.

    Returns:
        An object with ``run``, or a future of one.

    """
    first = compiler.triton(name, source, device_str=device_str)
    make = functools.partial(
        _Launched, functools.partial(compiler.triton, name, device_str=device_str), source
    )
    if isinstance(first, CodeCacheFuture):
        return LambdaFuture(lambda: make(first.result()))
    return make(first)


class _Launched:
    """Launches a kernel. GPUs of a machine may differ, and a launcher fits one: each GPU has its own form."""

    def __init__(self, compiler: Any, source: str, first: Any) -> None:
        self._compile, self._source = compiler, source
        self._forms: dict[int, Any] = {first.device_props.index: first}
        self._kind = first.device_props.type
        self._interface = get_interface_for_device(self._kind)
        self._operator = _operator(self._kind)

    def run(self, *arguments: Any, read: Sequence[int], stream: int) -> None:
        """Launches it on managed tensors; ``read``: where those stand that it does not write.

        ``stream`` is that of the GPU that the module was written for: another may be chosen.
        """
        kept = [i for i, each in enumerate(arguments) if isinstance(each, Tensor)]
        _calls.now = self, kept, read, arguments
        try:
            self._operator(
                [arguments[i] for i in kept if i in read], [arguments[i] for i in kept if i not in read]
            )
        except NotImplementedError as error:
            if labels.gpus():
                raise
            raise RuntimeError(
                f"a graph that was compiled for {self._kind} is called where no such node computes: "
                "torch.compiler.reset() has it compiled again for the nodes of configure()"
            ) from error
        finally:
            _calls.now = None

    def launch(self, gpu: int, arguments: Sequence[Any], written: Sequence[Tensor]) -> None:
        """Launches it over a GPU's own tensors. The GPU is the current one."""
        form = self._forms.get(gpu) or self._forms.setdefault(gpu, self._form_of(gpu))
        if len(form.launchers) > 1 and not self._may_be_timed(gpu, written):
            form.launchers = form.launchers[:1]
        form.run(*arguments, stream=self._interface.get_raw_stream(gpu))

    def _may_be_timed(self, gpu: int, written: Sequence[Tensor]) -> bool:
        """Whether there is free space for timing its launchers. Called before any operand is written."""
        cache = getattr(self._interface.get_device_properties(gpu), "L2_cache_size", 0)
        try:
            torch.empty(
                cache + sum(x.nbytes for x in written), dtype=torch.uint8, device=f"{self._kind}:{gpu}"
            )
        except torch.OutOfMemoryError:
            return False
        return True

    def _form_of(self, gpu: int) -> Any:
        there = DeviceProperties.create(torch.device(self._kind, gpu))
        made = self._compile(_PROPERTIES.sub(lambda _: repr(there), self._source))
        return made.result() if isinstance(made, CodeCacheFuture) else made


@functools.cache
def _operator(kind: str) -> Any:
    _library().impl("launched", _launch, kind.upper())
    return torch.ops.innkeeper.launched.default


@functools.cache
def _library() -> torch.library.Library:
    library = torch.library.Library("innkeeper", "FRAGMENT")
    library.define("launched(Tensor[] read, Tensor(a!)[] written) -> ()")
    library.impl("launched", lambda read, written: None, "Meta")
    return library


def _launch(read: Sequence[Tensor], written: Sequence[Tensor]) -> None:
    kernel, kept, only_read, given = _calls.now
    arguments, readable, writable = list(given), iter(read), iter(written)
    for i in kept:
        arguments[i] = next(readable if i in only_read else writable)
    kernel.launch(arguments[kept[0]].device.index, arguments, written)
