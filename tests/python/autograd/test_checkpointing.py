"""Activation checkpointing draws the same numbers again, by every name that PyTorch has for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from managed_scripts import Scripts

MODELS = Path(__file__).with_name("checkpointed_models.py")
WAYS = pytest.mark.parametrize("way", ["managed", "cuda"], ids=["plain", "run --managed"])

# A model with dropout in every place, and its gradients by each form of checkpointing.
FORMS = """
import contextlib, functools, sys
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
import innkeeper

DEVICE = sys.argv[1]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        x = torch.relu(self.dropout(self.first(x))) * scale
        x = x + torch.nn.functional.dropout(self.second(x), 0.3, self.training)
        x = torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2)[0]
        return x + torch.rand_like(x) * x


def make():
    torch.manual_seed(1)
    return torch.nn.Sequential(*(Block() for _ in range(4))).to(DEVICE)


def each(again):
    return lambda model, x: functools.reduce(lambda x, block: again(block, x), model, x)


def nested(outer, inner):
    def run(model, x):
        def half(blocks, x):
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=inner)
            return x
        for blocks in (model[:2], model[2:]):
            x = checkpoint(half, blocks, x, use_reentrant=outer)
        return x
    return run


def wrapped(model, x):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    return model(x)


save = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
compiled = torch.compile(lambda block, x: checkpoint(block, x, use_reentrant=False), backend="aot_eager")
forms = {
    "reentrant": each(lambda block, x: checkpoint(block, x, use_reentrant=True)),
    "not reentrant": each(lambda block, x: checkpoint(block, x, use_reentrant=False)),
    "keywords": each(lambda block, x: checkpoint(block, x, use_reentrant=False, scale=1.0)),
    "selective": each(lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=save)),
    "nested": nested(False, False),
    "nested, reentrant": nested(True, True),
    "nested, reentrant within": nested(False, True),
    "sequential": lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=False),
    "sequential, reentrant": lambda model, x: checkpoint_sequential(model, 2, x, use_reentrant=True),
    "wrapped modules": wrapped,
    "compiled": each(compiled),
}


def gradients(form):
    model = make()
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(2)).to(DEVICE).requires_grad_()
    torch.manual_seed(3)
    y = form(model, x)
    drawn = torch.rand(2, device=DEVICE)  # the stream goes on as without checkpointing
    y.sum().backward()
    after = torch.rand(2, device=DEVICE)
    return [value.cpu() for value in (drawn, after, x.grad, *(p.grad for p in model.parameters()))]


def same(form):
    try:
        return all(map(torch.equal, gradients(form), plain))
    except Exception as error:
        return repr(error)


plain = gradients(lambda model, x: model(x))
torch.manual_seed(0)
print({name: said for name, form in forms.items() if (said := same(form)) is not True})
budget = innkeeper.stats()["nodes"]["sim:0"]["peak"] // 2
innkeeper.manager().set_budget("sim:0", budget)
innkeeper.manager().reset_stats()
print({name: said for name, form in forms.items() if (said := same(form)) is not True})
print(innkeeper.stats()["evictions"] > 0, innkeeper.stats()["nodes"]["sim:0"]["peak"] <= budget)
"""


def words_of(way: str) -> list[str]:
    return ["-m", "innkeeper"] if way == "cuda" else []


@WAYS
def test_each_form_of_checkpointing_has_the_gradients_of_none(scripts: Scripts, tmp_path: Path, way: str):
    (tmp_path / "forms.py").write_text(FORMS)
    done = scripts.python(*words_of(way), "forms.py", way, INNKEEPER_NODES="sim:64MiB,host:1GiB")
    assert done.stdout.splitlines() == ["{}", "{}", "True True"], done.stderr


@WAYS
def test_models_of_transformers_have_the_gradients_of_none_at_full_and_half_memory(
    scripts: Scripts, way: str
):
    nodes = "sim:1x1GiB,host:2GiB"
    done = scripts.python(*words_of(way), str(MODELS), way, INNKEEPER_NODES=nodes)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 10
    for row in rows:
        for form in ("plain", "reentrant", "not reentrant"):
            found = row[form]
            assert found["full"] == found["half"] == [] and found["evictions"] > 0, row
    # Models whose gradients with checkpointing already differ on the CPU: the same terms in another order.
    others = {row["model"]: row["on the CPU"] for row in rows if row["on the CPU"]}
    assert others == {"t5": ["reentrant"]}
