"""``torch.compile`` with Inductor on ``managed``.

If the host or simulated accelerators compute, the kernels are those that Inductor writes for the CPU; if
GPUs compute, those that it writes for Triton. Each runs as an operator (``innkeeper::compiled`` of
``kernel``, ``innkeeper::launched`` of ``launch``): the engine makes its operands resident, chooses its node,
and releases them afterwards. So a compiled model need not fit any node. Computations that Inductor leaves to
PyTorch's kernels (matrix products, convolutions) are ordinary operators.

Inductor decides by a device's type in a hundred places, and no device can join them. So the graphs that it
gets (``labels``) say ``cpu:1`` where the program says ``managed``. For Inductor this has the CPU's type, and
it still differs from the program's own CPU tensors. If GPUs compute, the label is the first of them.
Inductor's output (``codegen``) says managed again, and calls its kernels by the operator. Its configuration
is not changed; other devices compile as without Innkeeper.
"""

from __future__ import annotations

import functools
import itertools
from types import ModuleType
from typing import Any

import torch
from innkeeper._names import DEVICE
from innkeeper.integrations import imports
from innkeeper.torch_patches.patch import put

_COMPILER = "torch._inductor.compile_fx"  # has what makes AOTInductor's packages


def install() -> None:
    """Has Inductor's graphs with managed tensors compiled here. Once; imports nothing of Inductor yet."""
    inductor = torch._TorchCompileInductorWrapper
    original = inductor.__call__

    @functools.wraps(original)
    def compile_graph(self: Any, model_: Any, inputs_: Any, **options: Any) -> Any:
        from innkeeper.inductor import compiler

        if not compiler.is_ours(model_):
            return original(self, model_, inputs_, **options)
        return compiler.compile_graph(
            model_, inputs_, {**self.config, **(options.get("config_patches") or {})}
        )

    put("torch._TorchCompileInductorWrapper.__call__", compile_graph)
    imports.after_import({_COMPILER: _refuse_packages}.get)


def _refuse_packages(module: ModuleType) -> None:
    """AOTInductor's have weights of their own, which no engine could move, and take addresses."""

    def refusing(original: Any) -> Any:
        @functools.wraps(original)
        def compile_package(model_: Any, example_inputs_: Any, *rest: Any, **options: Any) -> Any:
            own = itertools.chain(model_.parameters(), model_.buffers(), example_inputs_)
            if any(isinstance(value, torch.Tensor) and value.device.type == DEVICE for value in own):
                raise NotImplementedError(
                    f"AOTInductor makes no package of tensors on {DEVICE}: its code holds weights of its "
                    'own, which cannot be moved. Export the model on "cpu" or "cuda", or use torch.compile, '
                    "whose compiled graphs Inductor's cache keeps for the next process"
                )
            return original(model_, example_inputs_, *rest, **options)

        return compile_package

    imports.replace(module, "compile_fx_aot", refusing)
