"""The ways of training with less memory. Each is a change to a program; its lines are counted.

A change takes the program and edits it as its author would. ``before`` is applied before the model is made,
``after`` after that and before the optimizer is made.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from gpu_table.program import Program

Change = Callable[[Program], None]


def managed(program: Program) -> None:
    """Innkeeper's two lines; ``innkeeper run --managed`` needs none."""
    import innkeeper  # noqa: F401

    program.device = "managed"


def fsdp2(program: Program) -> None:
    """FSDP2 of one process: parameters, gradients and the optimizer's step are at the host."""
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    import torch.distributed as dist

    backend = "nccl" if program.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    mesh = dist.init_device_mesh(program.device, (1,))
    policy = CPUOffloadPolicy(pin_memory=program.device == "cuda")
    for layer in program.model.layers:
        fully_shard(layer, mesh=mesh, offload_policy=policy)
    fully_shard(program.model, mesh=mesh, offload_policy=policy)


def cpu_offload_optimizer(program: Program) -> None:
    """torchao: gradients go to the host, which makes the optimizer's step."""
    from torchao.optim import CPUOffloadOptimizer

    program.make_optimizer = lambda parameters: CPUOffloadOptimizer(
        parameters, torch.optim.AdamW, offload_gradients=True, lr=1e-4
    )


def adamw_8bit(program: Program) -> None:
    """torchao: AdamW's states have 8 bits."""
    from torchao.optim import AdamW8bit

    program.make_optimizer = lambda parameters: AdamW8bit(parameters, lr=1e-4)


def save_on_cpu(program: Program) -> None:
    """PyTorch: tensors that the forward pass saves for the backward pass are on the host."""
    loss = program.loss

    def saving() -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available()):
            return loss()

    program.loss = saving  # type: ignore[method-assign]


def micro_batches(program: Program) -> None:
    """Parts of the batch one after the other, whose gradients add up."""
    count = program.workload.micro
    parts = list(zip(*(x.chunk(count) for x in program.batch), strict=True))

    def accumulate() -> None:
        for part in parts:
            (program.model(*part) / len(parts)).backward()

    program.backward = accumulate  # type: ignore[method-assign]


def checkpointing(program: Program) -> None:
    """Each layer is recomputed in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    for layer in program.model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def selective_checkpointing(program: Program) -> None:
    """Each layer is recomputed but for its attention and matrix products."""
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    kept = [
        aten.mm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
    ]
    contexts = partial(create_selective_checkpoint_contexts, kept)
    for layer in program.model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=contexts)


def activation_memory_budget(program: Program) -> None:
    """torch.compile of each layer, with a part of the tensors that it would save."""
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = program.workload.compile_budgets[program.cap_gib or 0]
    for layer in program.model.layers:
        layer.compile()


@dataclass(frozen=True)
class Way:
    """One way of having the memory."""

    name: str
    before: tuple[Change, ...] = ()
    after: tuple[Change, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)  # Environment of the process.
    plans: bool = False  # Whether it needs the steps in which plans are made.
    package: str = ""  # A package that it needs beside PyTorch.
    needs_gpu: bool = False
    other_numbers: bool = False  # Whether it trains another program on purpose.
    slowdown: float = 1.5  # Estimate: its step in multiples of an uncapped one.
    start_s: float = 0.0  # Estimate: seconds that it needs to start beyond the others.

    @property
    def is_managed(self) -> bool:
        """Whether Innkeeper runs the program."""
        return managed in self.before

    @property
    def lines_changed(self) -> int:
        """Lines of the program that it changes."""
        return sum(count_lines(change) for change in (*self.before, *self.after))

    def missing(self, has_gpu: bool) -> str:
        """Why it cannot run here; empty where it can."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed"
        return "needs a GPU" if self.needs_gpu and not has_gpu else ""


def count_lines(change: Change) -> int:
    """Lines of code in a function's body: neither blank ones nor comments nor the docstring."""
    lines = textwrap.dedent(inspect.getsource(change)).splitlines()
    function = ast.parse("\n".join(lines)).body[0]
    assert isinstance(function, ast.FunctionDef)
    has_docstring = ast.get_docstring(function) is not None
    first = function.body[int(has_docstring)].lineno
    code = (line.strip() for line in lines[first - 1 :])
    return sum(1 for line in code if line and not line.startswith("#"))


ON_DEMAND = {"INNKEEPER_PLANNING": "off", "INNKEEPER_RECOMPUTE": "off"}
PLANNED = {"INNKEEPER_PLANNING": "on", "INNKEEPER_RECOMPUTE": "off"}
RECOMPUTE = {"INNKEEPER_PLANNING": "on", "INNKEEPER_RECOMPUTE": "on"}

PLAIN = Way("plain PyTorch", slowdown=1.0)
MANAGED = (
    Way("managed, planned with recompute", (managed,), settings=RECOMPUTE, plans=True, slowdown=1.2),
    Way("managed, planned", (managed,), settings=PLANNED, plans=True, slowdown=1.3),
    Way("managed, on demand", (managed,), settings=ON_DEMAND, slowdown=1.6),
)
FSDP2 = Way("FSDP2, CPUOffloadPolicy", after=(fsdp2,), slowdown=6)
CPU_OFFLOAD = Way(
    "torchao, CPUOffloadOptimizer",
    after=(cpu_offload_optimizer,),
    package="torchao",
    needs_gpu=True,
    slowdown=4,
)
SAVE_ON_CPU = Way("save_on_cpu", after=(save_on_cpu,), slowdown=2.5)
ADAMW_8BIT = Way(
    "torchao, 8-bit AdamW",
    after=(adamw_8bit,),
    package="torchao",
    other_numbers=True,
    start_s=20,
)
MICRO_BATCHES = Way("smaller micro-batches", after=(micro_batches,), slowdown=1.2)
CHECKPOINTING = Way("checkpointing", after=(checkpointing,), slowdown=1.3)
SELECTIVE = Way("selective checkpointing", after=(selective_checkpointing,), slowdown=1.2)
COMPILED = Way(
    "torch.compile, activation_memory_budget",
    after=(activation_memory_budget,),
    slowdown=1.2,
    start_s=25,
)
RIVALS_OF_STATES = (PLAIN, FSDP2, CPU_OFFLOAD, SAVE_ON_CPU, ADAMW_8BIT)
RIVALS = {
    "T1": RIVALS_OF_STATES,
    "T2": (*RIVALS_OF_STATES, MICRO_BATCHES),
    "T3": RIVALS_OF_STATES,
    "T4": RIVALS_OF_STATES,
    "T5": (PLAIN, CHECKPOINTING, SELECTIVE, COMPILED, MICRO_BATCHES),
    "T6": RIVALS_OF_STATES,
}
WAYS = {
    way.name: way for way in (*MANAGED, *RIVALS_OF_STATES, CHECKPOINTING, SELECTIVE, COMPILED, MICRO_BATCHES)
}
