"""torch.compile with Inductor: the CPU's kernels, as operators on managed tensors (innkeeper.inductor)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import innkeeper
import pytest
import torch.nn.functional as F
from processes import RunProgram

import torch
from torch import nn

TIGHT = "sim:1x1MiB,host:1GiB"
WORDS = 128


@pytest.fixture(autouse=True, scope="module")
def own_cache(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache without graphs of other runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture
def tight(configure: Callable[[str], None]) -> Iterator[None]:
    """A simulated GPU of one MiB. The fixture frees the tensors that compiled graphs keep."""
    configure(TIGHT)
    yield
    torch._dynamo.reset()


class Attention(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A function with many outputs, one per input."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(attended.reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    """A small GPT, its second block checkpointed."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.first, self.second = Attention(width), Attention(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.first(self.tokens(tokens))
        return self.head(torch.utils.checkpoint.checkpoint(self.second, x, use_reentrant=False))


def train(model: nn.Module, device: str, lengths: list[int]) -> list[torch.Tensor]:
    """Losses and then weights of some compiled steps."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    compiled = torch.compile(model, fullgraph=True, dynamic=len(set(lengths)) > 1)
    seen = []
    for length in lengths:
        # No token occurs twice: the CPU's threads decide the order of sums of several.
        tokens = torch.randperm(WORDS)[: 4 * length].view(4, length).to(device)
        loss = F.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.detach())
    return [x.cpu() for x in (*seen, *(p.detach() for p in model.parameters()))]


@pytest.mark.parametrize("lengths", [[32, 32, 32], [24, 17, 31]], ids=["fixed", "dynamic"])
def test_training_has_the_bits_of_the_cpus_compiled_graphs_at_a_budget_below_its_peak(
    tight: None, lengths: list[int]
) -> None:
    torch.manual_seed(0)
    model = Model()
    ours = copy.deepcopy(model).to("managed")
    expected = train(model, "cpu", lengths)
    evictions = innkeeper.stats()["evictions"]
    found = train(ours, "managed", lengths)
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert innkeeper.stats()["evictions"] > evictions, "the model fits: nothing was shown"


def test_arguments_are_written_and_results_are_views_of_them(tight: None) -> None:
    @torch.compile(fullgraph=True)
    def change(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y[:, 0] = x[:, 1] * 2
        return x[1:]

    x, y = torch.randn(4, 4), torch.randn(4, 4)
    ours = [x.to("managed"), y.to("managed")]
    expected, found = change(x, y), change(*ours)
    assert torch.equal(expected, found.cpu())
    assert all(torch.equal(a, b.cpu()) for a, b in zip((x, y), ours, strict=True))
    found.zero_()
    assert ours[0][1:].abs().sum() == 0


def test_a_region_that_is_compiled_once_and_called_twice(tight: None) -> None:
    @torch.compiler.nested_compile_region
    def region(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2 - x

    x = torch.randn(8, 8)
    ours = x.to("managed").requires_grad_()
    plain = x.clone().requires_grad_()
    for each in (plain, ours):
        torch.compile(lambda x: region(region(x)), fullgraph=True)(each).square().sum().backward()
    assert torch.equal(plain.grad, ours.grad.cpu())


def test_what_a_kernel_writes_makes_other_copies_stale(tight: None) -> None:
    x = torch.zeros(1000, device="managed")
    with innkeeper.resident(x, "host"):
        pass
    assert len(innkeeper.where(x)) == 2
    torch.compile(lambda x: x.add_(1))(x)
    assert innkeeper.where(x) == ["sim:0"]
    assert x.sum() == 1000


def test_graphs_with_cpu_tensors_beside_keep_each_result_where_it_belongs(tight: None) -> None:
    constant = torch.arange(4.0).to("managed")

    @torch.compile(fullgraph=True)
    def mix(x: torch.Tensor, y: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = (x * 2).to("managed") + y.sin() + constant
        made = torch.arange(4, device=y.device) + torch.ones(4, device="managed")
        return moved, (y + 1).cpu() * x, x + 1, number * y.sum(), y.sum() * number, made

    x, number = torch.randn(4, 4), torch.tensor(3.0)
    expected = (
        x * 2 + x.sin() + torch.arange(4.0),
        (x + 1) * x,
        x + 1,
        3 * x.sum(),
        3 * x.sum(),
        torch.arange(1.0, 5.0),
    )
    found = mix(x, x.to("managed"), number)
    assert [each.device.type for each in found] == ["managed", "cpu", "cpu", "managed", "managed", "managed"]
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b.cpu())


@pytest.mark.skipif(
    tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13),
    reason="compiled kernels of PyTorch before 2.13 end the process where they divide by zero",
)
def test_what_a_kernel_raises_is_raised_and_nothing_is_held(tight: None) -> None:
    divide = torch.compile(lambda x, y: x // y)
    x = torch.arange(4).to("managed")
    with pytest.raises(RuntimeError, match="integer_div_error"):
        divide(x, torch.zeros_like(x))
    assert divide(x, torch.ones_like(x)).tolist() == [0, 1, 2, 3]
    assert all(node["pinned"] == 0 for node in innkeeper.stats()["nodes"].values())
    innkeeper.manager().check_invariants()


def test_flexible_attention(tight: None) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    attend = torch.compile(flex_attention)
    query, key, value = (torch.randn(1, 2, 32, 16) for _ in range(3))

    def causal(score, batch, head, i, j):
        return torch.where(i >= j, score, -float("inf"))

    expected = attend(query, key, value, score_mod=causal)
    ours = [x.to("managed") for x in (query, key, value)]
    assert torch.equal(attend(*ours, score_mod=causal).cpu(), expected)
    with pytest.raises(NotImplementedError, match="no backward"):
        flex_attention(*(x.requires_grad_() for x in ours))


def test_other_devices_compile_as_without_us(tight: None) -> None:
    from torch._inductor.codegen import common
    from torch._inductor.utils import run_and_get_code

    def double(x: torch.Tensor) -> torch.Tensor:
        return x.cos() * 2

    x = torch.randn(8)
    _, (ours, *_) = run_and_get_code(torch.compile(double), x.to("managed"))
    assert "innkeeper_kernel" in ours
    torch._dynamo.reset()
    _, (theirs, *_) = run_and_get_code(torch.compile(double), x)
    assert "innkeeper" not in theirs
    assert "cpu" in common.device_codegens
    assert "managed" not in common.device_codegens


def test_reduce_overhead_captures_nothing(tight: None) -> None:
    f = torch.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    x = torch.randn(8)
    for _ in range(3):
        torch.testing.assert_close(f(x.to("managed")).cpu(), x.sin() + 1)


PACKAGES = """
import innkeeper
import torch

model, x = torch.nn.Linear(4, 4).eval(), torch.randn(2, 4)
package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)))
torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), model(x))
try:
    torch._inductor.aoti_compile_and_package(torch.export.export(model.to("managed"), (x.to("managed"),)))
except NotImplementedError as error:
    print(error)
"""


def test_packages_are_refused_in_one_line_and_made_for_other_devices(
    run_python: RunProgram, tmp_path: Path
) -> None:
    done = run_python("-c", PACKAGES, TORCHINDUCTOR_CACHE_DIR=str(tmp_path), timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("AOTInductor makes no package")
    assert "torch.compile" in done.stdout


@pytest.mark.slow
def test_templates_that_are_tuned(tight: None) -> None:
    """Templates of products in bfloat16 have buffers of their own, which Inductor declares as the CPU's."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        q, k, v = x.view(8, 16, 3, 2, 32).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    compiled = torch.compile(attend, mode="max-autotune-no-cudagraphs")
    torch.manual_seed(0)
    x = torch.randn(8, 16, 192).to(torch.bfloat16)
    assert torch.equal(compiled(x.to("managed")).cpu(), compiled(x))
