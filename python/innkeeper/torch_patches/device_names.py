"""Patches of PyTorch's Python code that decides by the names of the devices that it knows.

Each patched place has a list of names, or a name, that no device can join.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from torch.utils.dlpack import DLDeviceType

import torch
from innkeeper import _C
from innkeeper._names import DEVICE
from innkeeper.torch_patches.patch import patch, put
from torch import nn


def install() -> None:
    """Tells PyTorch. Once."""
    _print_on_the_host()
    _answer_dlpack()
    _lend_to_cuda_libraries()
    _accumulate_as_behind()
    _split_batches_over_nodes()
    _attend_flexibly()


def _print_on_the_host() -> None:
    """Formats managed tensors from a copy on the CPU, as PyTorch does for devices with costly operators.

    Formatting runs a dozen operators, which would move memory, and one of them needs data, which simulated
    machines may lack. PyTorch formats a tensor that it prints only in part: a copy of it might not fit.
    """

    def copying(original: Any) -> Any:
        def contents(self: torch.Tensor, indent: int) -> str:
            whole = _C.is_managed(self.device) and self.numel() <= torch._tensor_str.PRINT_OPTS.threshold
            return original(self.cpu() if whole else self, indent)

        return contents

    patch("torch._tensor_str._tensor_str", copying)


def _answer_dlpack() -> None:
    """Gives managed tensors DLPack's type of an out-of-tree device, which other libraries refuse.

    So ``torch.from_dlpack`` takes them, and shares their memory. PyTorch's own method compares the device
    with the name that such a device has before it is renamed.
    """

    def answering(original: Any) -> Any:
        @functools.wraps(original)
        def device(self: torch.Tensor) -> tuple[Any, int]:
            managed = _C.is_managed(self.device)
            return (DLDeviceType.kDLExtDev, self.get_device()) if managed else original(self)

        return device

    patch("torch.Tensor.__dlpack_device__", answering)


def no_address(x: torch.Tensor) -> str:
    """Text for errors of libraries that ask a managed tensor for its address."""
    return (
        f"a managed tensor of {tuple(x.shape)}, {x.dtype}: its memory moves, so it has no address; give the "
        "library the real tensor, from 'with innkeeper.resident(x, write=True) as real'"
    )


def _lend_to_cuda_libraries() -> None:
    """Makes the error for CUDA's array interface (CuPy, Numba) name the call that returns a real tensor.

    Managed tensors have no such interface, like those of the CPU: ``hasattr`` stays False.
    """

    def refusing(original: Any) -> Any:
        def interface(self: torch.Tensor) -> Any:
            if not _C.is_managed(self.device):
                return original.__get__(self)
            raise AttributeError(f"__cuda_array_interface__ of {no_address(self)}")

        return property(interface)

    patch("torch.Tensor.__cuda_array_interface__", refusing)


def _accumulate_as_behind() -> None:
    """Has ``linear_cross_entropy`` choose how to accumulate as it would on the device that computes.

    PyTorch knows two devices on which it accumulates lower precisions in float32, and how to cut the work.
    """

    def adjusting(original: Any) -> Any:
        @functools.wraps(original)
        def adjust(
            self: Any,
            num_batches: int,
            in_features: int,
            num_classes: int,
            dtype: torch.dtype,
            device: Any = None,
        ) -> Any:
            if device is not None and _C.is_managed(device):
                device = _computing_device()
            return original(self, num_batches, in_features, num_classes, dtype, device)

        return adjust

    patch("torch.nn.modules.linear_cross_entropy_options.LinearCrossEntropyOptions._adjust", adjusting)


def _computing_device() -> torch.device:
    """The device that runs the kernels: a GPU, or the CPU, which computes for simulated ones too."""
    from innkeeper.managed_device.device import computing_nodes

    kinds = {node.kind for node in computing_nodes()}
    return torch.device("cuda" if kinds == {"cuda"} else "cpu")


def _split_batches_over_nodes() -> None:
    """Has ``nn.DataParallel`` of a module on the one managed device go over the nodes.

    Other modules work as without Innkeeper, and so do all if each node has a device index.

    PyTorch asks for the present accelerator, not for the module's device, and numbers an accelerator's
    devices; the managed one has one. The module's device can change: programs wrap a module, then move it.
    """
    import torch.nn.parallel.data_parallel  # noqa: F401  (the module; its name in the package is a function)

    from innkeeper.data_parallel import data_parallel, is_managed

    theirs: Any = sys.modules["torch.nn.parallel.data_parallel"]
    accelerator, functional = theirs._get_available_device_type, theirs.data_parallel
    wrap, forward = nn.DataParallel.__init__, nn.DataParallel.forward

    def splits_over_nodes(module: nn.Module) -> bool:
        return is_managed(module) and not _C.has_device_per_node()

    def other_accelerator() -> str | None:
        found = accelerator()
        return None if found == DEVICE and not _C.has_device_per_node() else found

    @functools.wraps(wrap)
    def init(
        self: Any, module: nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        if splits_over_nodes(module):
            nn.Module.__init__(self)
            self.module, self.device_ids = module, []
        else:
            wrap(self, module, device_ids, output_device, dim)
        self._over_nodes = (device_ids, output_device, dim)

    @functools.wraps(forward)
    def call(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not splits_over_nodes(self.module):
            return forward(self, *inputs, **kwargs)
        device_ids, output_device, dim = self._over_nodes
        return data_parallel(self.module, inputs, device_ids, output_device, dim, kwargs)

    @functools.wraps(functional)
    def function(
        module: nn.Module,
        inputs: Any,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        module_kwargs: Any = None,
    ) -> Any:
        run = data_parallel if splits_over_nodes(module) else functional
        return run(module, inputs, device_ids, output_device, dim, module_kwargs)

    put("torch.nn.parallel.data_parallel._get_available_device_type", other_accelerator)
    put("torch.nn.parallel.data_parallel.data_parallel", function)
    put("torch.nn.parallel.data_parallel", function)
    put("torch.nn.DataParallel.__init__", init)
    put("torch.nn.DataParallel.forward", call)


def _attend_flexibly() -> None:
    """Lets ``flex_attention`` take managed tensors. It has no backward where the host computes, as CPUs."""
    from torch.nn.attention import flex_attention

    def host_computes() -> bool:
        from innkeeper.inductor.labels import gpus

        return not gpus()

    # torch.compiler.assume_constant_result() would set this, but imports all of Dynamo. The result is
    # constant because nodes do not change while there are tensors.
    host_computes._dynamo_marked_constant = True  # type: ignore[attr-defined]
    original, options = flex_attention._validate_device, flex_attention._apply_kernel_options

    @functools.wraps(options)
    def apply(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **others: Any) -> Any:
        applied = options(query, key, value, *rest, **others)
        if query.device.type == DEVICE and host_computes():
            applied["OUTPUT_LOGSUMEXP"] = False  # a backward needs this output
        return applied

    @functools.wraps(original)
    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if query.device.type != DEVICE:
            original(query, key, value)
        elif host_computes() and (query.requires_grad or key.requires_grad or value.requires_grad):
            raise NotImplementedError(
                "flex_attention has no backward for kernels that the host runs, as on the CPU: take "
                "torch.nn.functional.scaled_dot_product_attention with a mask, or no gradients"
            )

    put("torch.nn.attention.flex_attention._validate_device", validate)
    put("torch.nn.attention.flex_attention._apply_kernel_options", apply)
