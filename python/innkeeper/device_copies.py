"""The functions of ``torch._C`` behind ``torch.nn.parallel`` and ``torch.cuda.comm``, for managed devices.

PyTorch has them in its CUDA builds alone, for CUDA's tensors. Arguments, results and errors are those of its
``torch/csrc/cuda/comm.cpp``. They are installed where each node has a device index of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import put
from torch import Tensor


def install() -> None:
    """Installs them, once per process. If PyTorch was built with CUDA, its own tensors keep its functions."""
    import torch.cuda.comm
    from torch.nn.parallel.comm import nccl

    for function in (broadcast, broadcast_out, broadcast_coalesced, scatter, scatter_out, gather, gather_out):
        name = f"_{function.__name__}"
        of_cuda = getattr(torch._C, name, None)
        made = function if of_cuda is None else _by_device(function, of_cuda)
        put(f"torch._C.{name}", made)
    available = nccl.is_available

    def is_available(tensors: Sequence[Tensor]) -> bool:
        """Called by ``reduce_add``. For managed tensors PyTorch's own answer comes with a warning."""
        return not any(_C.is_managed(x.device) for x in tensors) and bool(available(tensors))

    put("torch.cuda.nccl.is_available", is_available)


def _by_device(managed: Callable[..., Any], of_cuda: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(managed)
    def call(*args: Any) -> Any:
        groups = (x if isinstance(x, list | tuple) else (x,) for x in args[:2])
        tensors = [x for group in groups for x in group if isinstance(x, Tensor)]
        cuda = any(x.is_cuda and not _C.is_managed(x.device) for x in tensors)
        return (of_cuda if cuda else managed)(*args)

    return call


def _check(condition: bool, error: str) -> None:
    if not condition:
        raise RuntimeError(error)


def _check_on_gpus(tensors: Sequence[Tensor], what: str, again: str = "") -> None:
    for i, x in enumerate(tensors):
        _check(
            _C.is_managed(x.device),
            f"Expected all {what} tensors to be CUDA tensors, but {again}tensor at index {i} has device "
            f"'{x.device}'",
        )


def _check_shapes(tensors: Sequence[Tensor], like: Tensor, dim: int, error: str) -> None:
    """Of tensors that are put together along ``dim``: they differ from ``like`` in that dimension alone."""
    for i, x in enumerate(tensors):
        expected = list(like.shape)
        if x.dim() == like.dim():
            expected[dim] = x.size(dim)
        _check(list(x.shape) == expected, error.format(i, list(x.shape), expected))


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """The tensor on each of the devices; itself where it is there already."""
    return [tensor.to(torch.device(DEVICE, index), non_blocking=True) for index in devices]


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    """Copies the tensor to each of ``out``."""
    _check_on_gpus(out, "output", "output ")
    for i, each in enumerate(out):
        _check(
            each.shape == tensor.shape,
            f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, but "
            f"output tensor at index {i} has shape {list(each.shape)}",
        )
        each.copy_(tensor, non_blocking=True)
    return list(out)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], size: int) -> list[list[Tensor]]:
    """The tensors on each of the devices, themselves on the first, where they are.

    They are not put into buffers of ``size`` bytes: a copy of each is one transfer, and the engine has no
    cost for a transfer that a buffer would share.
    """
    _check(
        all(x.get_device() == devices[0] for x in tensors),
        f"All tensors must be on devices[0]: {devices[0]}",
    )
    with torch.no_grad():
        return [
            list(tensors),
            *([broadcast(x.detach(), [index])[0] for x in tensors] for index in devices[1:]),
        ]


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
) -> list[Tensor]:
    """Parts of the tensor along ``dim``, one on each device."""
    _check(len(devices) > 0, "Expected at least one device to scatter to")
    if sizes is None:
        parts = tensor.chunk(len(devices), dim)
    else:
        _check(
            len(sizes) == len(devices),
            "Expected devices and chunk_sizes to be of same length, but got len(devices) = "
            f"{len(devices)} and len(chunk_sizes) = {len(sizes)}",
        )
        parts = tensor.split_with_sizes(list(sizes), dim)
    made = []
    for i, part in enumerate(parts):
        stream = streams[i] if streams else None
        _check(
            stream is None or stream.device_index == devices[i],
            f"Expected the device associated with the stream at index {i} to match the device supplied at "
            f"that index (expected {devices[i]})",
        )
        with stream or nullcontext():
            made.append(part.to(torch.device(DEVICE, devices[i]), non_blocking=True))
    return made


def scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams: Any = None) -> list[Tensor]:
    """Copies parts of the tensor along ``dim`` to ``out``."""
    _check(len(out) > 0, "Expected at least one output tensor to scatter to")
    _check_on_gpus(out, "output", "output ")
    dim %= max(tensor.dim(), 1)
    error = "Output tensor at index {} has incorrect shape {}, expected {}"
    _check_shapes(out, tensor, dim, error)
    sizes = [each.size(dim) for each in out]
    _check(
        sum(sizes) == tensor.size(dim),
        f"Total size for output tensors along scatter dim {dim} does not match the tensor's: expected "
        f"{tensor.size(dim)}, but got {sum(sizes)}",
    )
    for part, each in zip(tensor.split(sizes, dim), out, strict=True):
        each.copy_(part, non_blocking=True)
    return list(out)


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """The tensors put together along ``dim``: on the CPU for -1, on the current device for None."""
    _check_inputs(tensors, dim)
    index = _C.current_index() if destination is None else destination
    device = torch.device("cpu") if index == -1 else torch.device(DEVICE, index)
    shape = list(tensors[0].shape)
    shape[dim] = sum(x.size(dim) for x in tensors)
    formats = {_memory_format(x) for x in tensors}
    memory_format = formats.pop() if len(formats) == 1 else torch.contiguous_format
    whole = torch.empty(shape, dtype=tensors[0].dtype, device=device, memory_format=memory_format)
    return gather_out(tensors, whole, dim)


def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    """Copies the tensors to ``out``, one behind the other along ``dim``."""
    _check_inputs(tensors, dim)
    sizes = [x.size(dim) for x in tensors]
    expected = list(tensors[0].shape)
    expected[dim] = sum(sizes)
    _check(
        list(out.shape) == expected,
        f"Expected out tensor to have shape {expected}, but got {list(out.shape)}",
    )
    for part, x in zip(out.split(sizes, dim), tensors, strict=True):
        part.copy_(x, non_blocking=True)
    return out


def _check_inputs(tensors: Sequence[Tensor], dim: int) -> None:
    _check(len(tensors) > 0, "Expected at least one tensor to gather from")
    _check_on_gpus(tensors, "input")
    first = tensors[0]
    for i, x in enumerate(tensors):
        _check(
            x.dim() == first.dim(),
            "Expected all input tensors to have the same number of dimensions, but tensor at index "
            f"{i} has {x.dim()} dimensions, (expected {first.dim()})",
        )
    _check_shapes(tensors, first, dim, "Input tensor at index {} has invalid shape {}, but expected {}")


def _memory_format(x: Tensor) -> torch.memory_format:
    """The one that a tensor of this layout suggests."""
    wider = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if wider is not None and not x.is_contiguous() and x.is_contiguous(memory_format=wider):
        return wider
    return torch.contiguous_format
