"""PyTorch's own databases of operators, modules and optimizers: see tests/compat/other_devices.py.

Each test's results are noted as a digest of their bits, so that runs can be compared: on CPU tensors with the
package and without, or on PYTORCH_OWN_DEVICE. Samples and modules are made on the CPU, and moved.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

if os.environ.get("PYTORCH_OWN_LOADED") == "1":
    import innkeeper  # noqa: F401
from torch.testing._internal import common_methods_invocations as methods
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_leaves, tree_map_only

import torch
from torch import Tensor, nn

DEVICE = os.environ.get("PYTORCH_OWN_DEVICE", "cpu")
SAMPLES = 4
FOREACH = [
    op
    for name in ("unary", "binary", "pointwise", "reduce", "other")
    for op in getattr(methods, f"foreach_{name}_op_db")
]
found: dict[str, str] = {}


def tearDownModule() -> None:
    Path(os.environ["PYTORCH_OWN_FOUND"]).write_text(json.dumps(found))


def moved(tree: Any) -> Any:
    """A copy on the device. Samples share tensors among themselves; a tensor that occurs twice stays one."""
    made: dict[int, Tensor] = {}

    def move(x: Tensor) -> Tensor:
        if id(x) not in made:
            made[id(x)] = x.detach().to(DEVICE, copy=True).requires_grad_(x.requires_grad)
        return made[id(x)]

    return tree_map_only(Tensor, move, tree)


def digest(tree: Any) -> str:
    """Digest of the bits of all tensors, shapes and types included."""
    sum_of_all = hashlib.blake2b(digest_size=8)
    for leaf in tree_leaves(tree):
        if not isinstance(leaf, Tensor):
            sum_of_all.update(repr(leaf).encode())
            continue
        x = leaf.detach().cpu()
        x = x.to_dense() if x.layout != torch.strided else x
        sum_of_all.update(f"{tuple(x.shape)} {x.dtype}".encode())
        whole = torch.empty(x.numel(), dtype=x.dtype).copy_(x.reshape(-1))  # Row by row, for any layout of x.
        if x.is_complex():
            whole = torch.view_as_real(whole).reshape(-1)
        if x.is_complex() or x.is_floating_point():
            whole.masked_fill_(whole.isnan(), torch.nan)  # All NaNs are equal here.
        sum_of_all.update(whole.view(torch.uint8).numpy().tobytes())
    return sum_of_all.hexdigest()


def gradients(results: Any, operands: Any) -> list[Tensor | None]:
    differentiable = [x for x in tree_leaves(results) if isinstance(x, Tensor) and x.requires_grad]
    leaves = [x for x in tree_leaves(operands) if isinstance(x, Tensor) and x.requires_grad]
    if not differentiable or not leaves:
        return []
    total = sum((x.abs() if x.is_complex() else x).sum() for x in differentiable)
    return list(torch.autograd.grad(total, leaves, allow_unused=True))


class TestDatabases(TestCase):
    def note(self, result: Any) -> None:
        found[self.id().rpartition(".")[2]] = digest(result)

    @ops(methods.op_db, allowed_dtypes=(torch.float32,))
    def test_operator(self, device: str, dtype: torch.dtype, op: Any) -> None:
        results = []
        for sample in islice(op.sample_inputs(device, dtype, requires_grad=op.supports_autograd), SAMPLES):
            operand, arguments, options = moved((sample.input, sample.args, sample.kwargs))
            torch.manual_seed(0)
            result = op(operand, *arguments, **options)
            results.append((result, gradients(result, (operand, arguments, options))))
        self.note(results)

    @ops(FOREACH, allowed_dtypes=(torch.float32,))
    def test_lists(self, device: str, dtype: torch.dtype, op: Any) -> None:
        results = []
        for sample in islice(op.sample_inputs(device, dtype), 40):
            lists, arguments, options = moved((sample.input, sample.args, sample.kwargs))
            results.append(op.method_variant(lists, *arguments, **options))
            if op.inplace_variant is not None:
                op.inplace_variant(lists, *arguments, **options)
                results.append(lists)
        self.note(results)

    @modules(module_db, allowed_dtypes=(torch.float32,))
    def test_module(self, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
        samples = module_info.module_inputs_func(
            module_info, device=device, dtype=dtype, requires_grad=True, training=training
        )
        results = []
        for sample in samples:
            if sample.forward_input is None:
                continue
            torch.manual_seed(0)
            made = sample.constructor_input
            module = module_info.module_cls(*made.args, **made.kwargs).train(training).to(DEVICE)
            arguments, options = moved((sample.forward_input.args, sample.forward_input.kwargs))
            torch.manual_seed(1)
            result = module(*arguments, **options)
            operands = (arguments, options, list(module.parameters()))
            results.append((result, gradients(result, operands), list(module.buffers())))
        self.note(results)

    @optims(optim_db, dtypes=[torch.float32])
    def test_optimizer(self, device: str, dtype: torch.dtype, optim_info: Any) -> None:
        results = []
        for sample in optim_info.optim_inputs_func(device=device):
            if "foreach" in optim_info.supported_impls and "fused" not in sample.kwargs:
                sample.kwargs.setdefault(
                    "foreach", False
                )  # Accelerators take lists by default, the CPU does not.
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).to(DEVICE)
            optimizer = optim_info.optim_cls(
                [p for p in model.parameters() if p.dim() == 2] if optim_info.optim_cls.__name__ == "Muon"
                else model.parameters(),
                **copy.deepcopy(sample.kwargs),
            )  # fmt: skip

            def loss(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
                optimizer.zero_grad()
                total = model(torch.linspace(-1, 1, 32).reshape(4, 8).to(DEVICE)).square().sum()
                total.backward()
                if optim_info.only_supports_sparse_grads:
                    for p in model.parameters():
                        p.grad = p.grad.to_sparse()
                return total

            for _ in range(3):
                optimizer.step(loss)
            results.append(list(model.parameters()))
        self.note(results)


instantiate_device_type_tests(TestDatabases, globals(), only_for="cpu")
