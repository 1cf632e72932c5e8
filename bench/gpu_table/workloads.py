"""The rows of the table: the trained model, its caps, and the number of steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpu_table.models import Shape

GIB = 1 << 30
LLAMA_1B = Shape("llama", 16, 2048, 8192, heads=32, groups=8, head=64, words=128_256)
LLAMA_3B = Shape("llama", 28, 3072, 8192, heads=24, groups=8, head=128, words=128_256)
LLAMA_8B = Shape("llama", 32, 4096, 14_336, heads=32, groups=8, head=128, words=128_256, tied=False)
QWEN_4B = Shape("llama", 36, 2560, 9728, heads=32, groups=8, head=128, words=151_936)
VIT_GIANT = Shape(
    "vit", 40, 1536, 4096, heads=24, groups=24, head=64, words=1000, side=518, patch=14
)  # fmt: skip
GPT_2 = Shape("gpt", 12, 768, 3072, heads=12, groups=12, head=64, words=50_257, length=1024)
EIGHT_OF_256 = Shape("perceptron", 8, 256)


@dataclass(frozen=True)
class Workload:
    """A training program: a model, a batch and an optimizer, before anything is done about its memory."""

    name: str
    title: str
    shape: Shape
    batch: int
    length: int = 0  # Tokens of a sequence; 0 for inputs that are no sequences.
    checkpointed: bool = True  # Whether the program checkpoints its layers.
    caps: tuple[float, ...] = ()  # GiB; empty where everything fits.
    micro: int = 4  # Parts of a batch for gradient accumulation.
    compile_budgets: dict[float, float] = field(default_factory=dict)  # Cap to activation_memory_budget.
    step_s: float = 0.1  # Estimate: seconds of an uncapped step on an H200, at some 500 TFLOP/s.
    warm_up: int = 2  # Steps before those that are measured.
    warm_up_planned: int = 6  # The same for ways that plan: a plan is followed from the sixth on.
    measured: int = 3  # Steps that are measured.

    @property
    def unit(self) -> str:
        """The thing whose number a second is the speed."""
        return "tokens" if self.length else "images" if self.shape.kind == "vit" else "samples"

    @property
    def units(self) -> int:
        """How many of them a step takes."""
        return self.batch * max(1, self.length)

    def small(self) -> Workload:
        """The same program at the smallest shape: to try its code, not its speed."""
        return replace(
            self,
            shape=self.shape.small(),
            batch=self.batch if self.batch < 4 else 4,
            length=64 if self.length else 0,
            caps=(SMALL_CAP_MIB / 1024,) if self.caps else (),
            compile_budgets={SMALL_CAP_MIB / 1024: 0.5},
            measured=2,
        )


SMALL_CAP_MIB = 0.75  # The cap of a simulated GPU at the smallest shape.

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "T1",
            "Llama-3.2-3B, batch 2 of 4,096 tokens, checkpointing",
            LLAMA_3B,
            batch=2,
            length=4096,
            caps=(20, 16, 12),
            step_s=0.43,
        ),
        Workload(
            "T2",
            "ViT-giant (1.1B), batch 32 of 518 pixels, checkpointing",
            VIT_GIANT,
            batch=32,
            caps=(7, 5.3, 4),
            micro=8,
            step_s=0.95,
        ),
        Workload(
            "T3",
            "Llama-3.1-8B, batch 32 of 1,024 tokens, checkpointing",
            LLAMA_8B,
            batch=32,
            length=1024,
            caps=(32,),
            micro=8,
            step_s=3.8,
            warm_up=1,
            measured=2,
        ),
        Workload(
            "T4",
            "Llama-3.2-1B, one sequence of 65,536 tokens, checkpointing",
            LLAMA_1B,
            batch=1,
            length=65_536,
            caps=(24, 16),
            step_s=4.5,
            measured=2,
        ),
        Workload(
            "T5",
            "Llama-3.2-1B, batch 4 of 2,048 tokens, no checkpointing",
            LLAMA_1B,
            batch=4,
            length=2048,
            checkpointed=False,
            caps=(20, 16, 12),
            compile_budgets={20: 0.7, 16: 0.4, 12: 0.1},
            step_s=0.14,
        ),
        Workload(
            "T6",
            "Qwen3-4B, one sequence of 1,024 tokens, checkpointing: bound by the link",
            QWEN_4B,
            batch=1,
            length=1024,
            caps=(20,),
            step_s=0.1,
        ),
        Workload(
            "fits GPT-2",
            "GPT-2 small, batch 8 of 1,024 tokens, all resident",
            GPT_2,
            batch=8,
            length=1024,
            checkpointed=False,
            step_s=0.05,
            measured=20,
        ),
        Workload(
            "fits 8x256",
            "perceptron of 8 layers of 256, batch 32, all resident",
            EIGHT_OF_256,
            batch=32,
            checkpointed=False,
            step_s=0.004,
            measured=100,
        ),
    )
}
