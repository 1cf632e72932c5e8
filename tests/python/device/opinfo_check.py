"""Compares every operator of PyTorch's own OpInfo database on the managed device with the same on the CPU.

    python tests/python/device/opinfo_check.py --dtype float32 int64 --samples 2 --exact

A case is an operator and a dtype. Each runs in a forked child, so that a crash is one failure. A case passes
when the results of all samples equal the CPU's, and so do, if the operator has them, the gradient, the
in-place variant and the out= variant: bit for bit with --exact, else within assert_close's tolerance. A line
for each failure names the case and the difference. The last line reads

    opinfo: N passed, M failed, K skipped

The exit status is 1 if a case failed. NumPy, SciPy, expecttest and hypothesis have to be installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

import torch
from torch import Tensor

# Parts of the names of operators that draw random numbers, or leave memory unwritten.
RANDOM = (
    "rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "exponential", "cauchy", "geometric",
    "poisson", "empty", "rrelu", "gumbel", "pca_lowrank", "svd_lowrank",
)  # fmt: skip
CUDA_ONLY = ("jiterator",)
# Operators for which the CPU's sample is another question once it is moved to the device, and why.
NOT_COMPARABLE = {
    "as_strided_partial_views": "a moved view has its own storage",
    "tensor_split": "indices must stay on the CPU",
    "to": "the sample names the CPU as its target",
}


class Inputs(NamedTuple):
    """The arguments of one call of an operator."""

    operand: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def call(self, function: Callable[..., Any], **more: Any) -> Any:
        return function(self.operand, *self.arguments, **self.options, **more)


def moved(inputs: Inputs, device: str) -> Inputs:
    """The same value on the device."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    options = {k: device if k == "device" and v == "cpu" else v for k, v in inputs.options.items()}
    return Inputs(*tree_map(move, (inputs.operand, inputs.arguments, options)))


def detached(inputs: Inputs) -> Inputs:
    """A copy without a graph, for a call that writes its operand."""
    return Inputs(*tree_map_only(Tensor, lambda x: x.detach().clone(), tuple(inputs)))


def outcome(call: Callable[[], Any]) -> Any:
    """Result on the CPU; None if the CPU refuses the call, which then shows nothing."""
    try:
        return call()
    except Exception:
        return None


def gradients(result: Any, inputs: Inputs) -> list[Tensor | None] | None:
    """Gradients of the sum of all results by the inputs; None if no result has a gradient."""
    differentiable = [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.requires_grad]
    if not differentiable:
        return None
    wanted = [x for x in tree_leaves(tuple(inputs)) if isinstance(x, Tensor) and x.requires_grad]
    loss = sum((x.abs() if x.is_complex() else x).sum() for x in differentiable)
    return list(torch.autograd.grad(loss, wanted, allow_unused=True))


class Comparison:
    """Compares one operator on a device with the same on the CPU; raises AssertionError where they differ."""

    def __init__(self, operator: Any, device: str, exact: bool) -> None:
        self.operator, self.device = operator, device
        self.tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}

    def same(self, actual: Any, expected: Any, what: str) -> None:
        on_cpu = [tree_map_only(Tensor, lambda x: x.detach().cpu(), tree) for tree in (actual, expected)]
        torch.testing.assert_close(
            *on_cpu, equal_nan=True, msg=lambda said: f"{what}: {said}", **self.tolerance
        )

    def sample(self, inputs: Inputs, in_place: bool, differentiable: bool) -> bool:
        """Compares one sample; returns whether it could be compared."""
        ours = moved(inputs, self.device)
        torch.manual_seed(0)
        expected = outcome(lambda: (inputs.call(self.operator),))
        if expected is None:
            return False
        (expected,) = expected
        torch.manual_seed(0)
        actual = ours.call(self.operator)
        for a, e in zip(tree_leaves(actual), tree_leaves(expected), strict=False):
            if isinstance(e, Tensor) and e.device.type == "cpu" and a.device.type != self.device:
                raise AssertionError(f"result is on {a.device}")
        self.same(actual, expected, "forward")
        if differentiable and (wanted := outcome(lambda: gradients(expected, inputs))) is not None:
            self.same(gradients(actual, ours), wanted, "backward")
        if in_place and self.operator.inplace_variant:
            self.in_place(detached(inputs), detached(ours))
        if self.operator.supports_out and isinstance(expected, Tensor):
            self.out(inputs, ours, expected.detach())
        return True

    def in_place(self, inputs: Inputs, ours: Inputs) -> None:
        """Compares the variant that writes its operand."""
        variant = self.operator.inplace_variant
        expected = outcome(lambda: inputs.call(variant))
        if expected is not None:
            self.same(ours.call(variant), expected, "in-place")
            self.same(ours.operand, inputs.operand, "in-place target")

    @torch.no_grad()
    def out(self, inputs: Inputs, ours: Inputs, like: Tensor) -> None:
        """Compares the variant that writes its result into a given tensor."""
        target = torch.empty_like(like).to(self.device)
        alias = target.view_as(target)
        expected = outcome(lambda: inputs.call(self.operator, out=torch.empty_like(like)))
        if expected is not None:
            ours.call(self.operator, out=target)
            self.same(alias, expected, "out=")


def check(operator: Any, dtype: torch.dtype, args: argparse.Namespace) -> None:
    """Compares the samples of one case."""
    differentiable = operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
    comparison = Comparison(operator, args.device, args.exact)
    samples = operator.sample_inputs("cpu", dtype, requires_grad=differentiable)
    compared = [
        comparison.sample(
            Inputs(sample.input, sample.args, sample.kwargs), not sample.broadcasts_input, differentiable
        )
        for sample in islice(samples, args.samples)
    ]
    if not any(compared):
        raise AssertionError("no sample could be compared")


def in_child(operator: Any, dtype: torch.dtype, args: argparse.Namespace) -> str:
    """Message of a child that checks one case: ``ok``, the difference, or the way it ended."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            signal.alarm(args.seconds)
            check(operator, dtype, args)
            said = "ok"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 4096).decode()
    os.close(read)
    number = os.waitpid(pid, 0)[1] & 127
    return said or ("no answer in time" if number == signal.SIGALRM else f"died of signal {number}")


def is_comparable(operator: Any, dtype: torch.dtype) -> bool:
    return (
        not any(part in operator.name for part in RANDOM + CUDA_ONLY)
        and operator.formatted_name not in NOT_COMPARABLE
        and dtype in operator.supported_dtypes("cpu")
    )


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--module", default="innkeeper", help="imported first: it makes the device")
    p.add_argument("--device", default="managed")
    p.add_argument("--dtype", nargs="+", default=["float32"])
    p.add_argument("--samples", type=int, default=6, help="sample inputs for each operator")
    p.add_argument("--seconds", type=int, default=30, help="time limit for one operator")
    p.add_argument("--exact", action="store_true", help="ask for bitwise equality")
    p.add_argument("--only", default="", help="only operators whose name contains this")
    p.add_argument("--list", type=Path, help="write the failures to this file")
    return p.parse_args()


def main() -> int:
    """Checks all cases; returns the exit status."""
    args = parse()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    importlib.import_module(args.module)
    from torch.testing._internal.common_methods_invocations import op_db

    began = time.monotonic()
    passed = skipped = 0
    failures = []
    for name in args.dtype:
        dtype = getattr(torch, name)
        for operator in op_db:
            if args.only not in operator.formatted_name:
                continue
            if not is_comparable(operator, dtype):
                skipped += 1
                continue
            said = in_child(operator, dtype, args)
            if said == "ok":
                passed += 1
            else:
                failures.append(f"{operator.formatted_name} {name} {said}")
    for line in failures:
        print(line)
    if args.list is not None:
        args.list.write_text("\n".join(failures))
    print(f"# {time.monotonic() - began:.0f} s")
    print(f"opinfo: {passed} passed, {len(failures)} failed, {skipped} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
