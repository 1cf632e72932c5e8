"""Whether models of transformers have the same gradients with activation checkpointing as without.

Prints a row in JSON for each model: the forms of checkpointing whose loss or gradients differ in a bit from
those of the CPU, by the available memory. Dropout is on in every configuration and module that has it.

    python tests/python/autograd/checkpointed_models.py managed
    python -m innkeeper tests/python/autograd/checkpointed_models.py cuda
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parents[2] / "compat"))

import innkeeper
from of_transformers import candidates
from subject import Subject
from torch.utils._pytree import tree_map_only

import torch

MODELS = ["gpt2", "bert", "t5", "bart", "opt", "gpt_neox", "llama", "vit", "deberta-v2", "electra"]
RATE = 0.3
FORMS = {"plain": None, "reentrant": True, "not reentrant": False}
NODE = "sim:0"

Result = dict[str, torch.Tensor]


def drop_everywhere(config: Any) -> None:
    """Sets every rate of dropout that the configuration has.

    Whether a whole layer is dropped is drawn on the CPU. The CPU's own run has one generator for both.
    """
    for name, value in list(vars(config).items()):
        if "drop" in name and type(value) in (int, float):
            setattr(config, name, 0.0 if "layerdrop" in name else RATE)


def gradients(subject: Subject, form: bool | None, device: str) -> Result:
    """Of one training step, on the CPU, by the parameters' names; and the loss.

    ``form``: None for no checkpointing, else its ``use_reentrant``.
    """
    model = subject.make().to(device).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = module.p or RATE
    if form is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": form})
    inputs = tree_map_only(torch.Tensor, lambda value: value.to(device), subject.inputs)
    torch.manual_seed(2)
    loss = subject.loss(model, inputs)
    loss.backward()
    grads = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return grads | {"loss": loss.detach().cpu()}


def differing(a: Result, b: Result) -> list[str]:
    """Names whose bits differ."""
    return sorted(name for name in a.keys() | b.keys() if not torch.equal(a[name], b[name]))


def rows(device: str) -> Iterator[dict[str, Any]]:
    """Rows, one for each model."""
    manager = innkeeper.manager()
    whole = manager.budget(NODE)
    by_name = {candidate.name: candidate for candidate in candidates(drop_everywhere)}
    for name in MODELS:
        tried = by_name[name].prepare()
        on_cpu = {form: gradients(tried, again, "cpu") for form, again in FORMS.items()}
        row: dict[str, Any] = {"model": name, "gradients": len(on_cpu["plain"])}
        row["on the CPU"] = [form for form in FORMS if differing(on_cpu[form], on_cpu["plain"])]
        for form, again in FORMS.items():
            manager.reset_stats()
            full = gradients(tried, again, device)
            half = innkeeper.stats()["nodes"][NODE]["peak"] // 2
            manager.set_budget(NODE, half)
            manager.reset_stats()
            squeezed = gradients(tried, again, device)
            evictions = innkeeper.stats()["evictions"]
            manager.set_budget(NODE, whole)
            row[form] = {
                "full": differing(full, on_cpu[form]),
                "half": differing(squeezed, on_cpu[form]),
                "evictions": evictions,
            }
        yield row


def main() -> None:
    """Runs all."""
    warnings.simplefilter("ignore")
    for row in rows(*sys.argv[1:]):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
