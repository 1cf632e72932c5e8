"""A step that needs 1.4 times the budget: managed, against what one does without it.

Plain PyTorch has to take a smaller batch, or to keep saved tensors (`save_on_cpu`) or parameters and the
optimizer (FSDP2's CPU offload) on the host, in programs that ask for it. CUDA's unified memory takes the
whole batch and moves pages on faults. Reported are samples a second, and the most that PyTorch had allocated.
What must hold: the managed steps keep to the budget, and their losses are those of plain PyTorch with all the
memory it wants, planned or not, and where things are computed again.

Unified memory is measured only with INNKEEPER_GPU_UNIFIED=1: a program that asks for more of it than the card
has free can hang the card for everybody.
"""

from __future__ import annotations

import json
import os
from functools import cache

import pytest
from card import MIB, REAL, answer_of, record

import torch

TIMES = 1.4
BUDGET = int(os.environ.get("INNKEEPER_GPU_BUDGET", str((4 << 30) if REAL else 24 * MIB)))
SHAPE = {"width": 2048, "layers": 24} if REAL else {"width": 64, "layers": 6}
BATCHES = (1024, 4096) if REAL else (256, 1024)  # two points of the line from batch to peak
STEPS = 8 if REAL else 2

SCRIPT = """
import json
import torch
import perceptron
arguments = json.loads({arguments!r})
torch.use_deterministic_algorithms(True)
print(json.dumps(perceptron.measure(**arguments)))
"""


@cache
def measure(how: str, batch: int) -> dict:
    arguments = {"how": how, "batch": batch, "steps": STEPS, "budget": BUDGET, **SHAPE}
    return answer_of(SCRIPT.format(arguments=json.dumps(arguments)))


@pytest.fixture(scope="module")
def batches() -> tuple[int, int]:
    """The batch whose plain step just fits the budget, and the one that takes TIMES as much."""
    small, large = (measure("plain" if REAL else "managed-whole", batch) for batch in BATCHES)
    a_sample = (large["peak"] - small["peak"]) / (BATCHES[1] - BATCHES[0])
    fixed = small["peak"] - a_sample * BATCHES[0]
    assert fixed < BUDGET, "the weights alone are more than the budget"
    return int((0.97 * BUDGET - fixed) / a_sample), int((TIMES * BUDGET - fixed) / a_sample)


def test_managed_takes_the_batch_that_does_not_fit(batches: tuple[int, int]) -> None:
    fits, over = batches
    whole = measure("plain", over)
    smaller = measure("plain", fits)
    managed = measure("managed", over)
    record(
        "oversubscription",
        budget=BUDGET,
        times=TIMES,
        plain_with_all_memory={"batch": over, **figures(whole)},
        plain_smaller_batch={"batch": fits, **figures(smaller)},
        managed={"batch": over, **figures(managed), "evictions": managed["stats"]["evictions"]},
    )
    assert managed["losses"] == whole["losses"]
    assert managed["stats"]["evictions"] > 0
    assert managed["peak"] <= BUDGET
    if REAL:
        assert whole["peak"] > 1.3 * BUDGET
        assert smaller["peak"] <= BUDGET


@pytest.mark.parametrize("how", ["managed-unplanned", "managed-recompute"])
def test_without_plans_and_with_recompute(how: str, batches: tuple[int, int]) -> None:
    run = measure(how, batches[1])
    name = how.replace("-", "_")
    record("oversubscription", **{name: {"batch": batches[1], **figures(run)}})
    assert run["losses"] == measure("plain", batches[1])["losses"]
    assert run["peak"] <= BUDGET
    assert (run["stats"]["planned_rounds"] == 0) == (how == "managed-unplanned")


@pytest.mark.parametrize("how", ["save_on_cpu", "fsdp"])
def test_what_programs_ask_pytorch_for(how: str, batches: tuple[int, int]) -> None:
    """At the same batch, with all the memory that they want beside what they keep on the host."""
    run = measure(how, batches[1])
    record("oversubscription", **{how: {"batch": batches[1], **figures(run)}})
    losses = torch.tensor(run["losses"])  # FSDP's optimizer is another processor's
    torch.testing.assert_close(losses, torch.tensor(measure("plain", batches[1])["losses"]))


def figures(run: dict) -> dict:
    return {"samples_a_second": run["samples_a_second"], "peak_bytes": run["peak"]}


@pytest.mark.real
@pytest.mark.skipif(os.environ.get("INNKEEPER_GPU_UNIFIED") != "1", reason="INNKEEPER_GPU_UNIFIED is not 1")
def test_unified_memory_takes_it_page_by_page(batches: tuple[int, int]) -> None:
    unified = measure("unified", batches[1])
    record("oversubscription", unified={"batch": batches[1], "samples_a_second": unified["samples_a_second"]})
    assert unified["losses"] == measure("plain", batches[1])["losses"]
