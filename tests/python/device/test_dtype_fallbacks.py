"""Operators that CUDA has for a dtype and the host's kernels lack, by PyTorch's own tables of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import innkeeper
import pytest
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import torch
from torch import Tensor

WIDE = {torch.bool: torch.uint8, torch.float16: torch.float32, torch.bfloat16: torch.float32}
# Operators that stay as on the CPU, each with the reason.
LEFT = {
    "abs": "bool: the identity; PyTorch's hot operators have one kernel for all dtypes",
    "nn_functional_softsign": "bool: by abs",
    "nn_functional_batch_norm_without_cudnn": "statistics of another dtype than the input's",
    "nn_functional_rrelu": "it draws random numbers, which a wider dtype draws otherwise",
    "torch_ops_aten__flash_attention_forward": "CUDA's own kernel",
    "torch_ops_aten__efficient_attention_forward": "CUDA's own kernel",
}


def cases() -> Iterator[Any]:
    for op in op_db:
        name = op.formatted_name
        # PyTorch uses the device's name before it takes a transform of halves; nansum of complex numbers has
        # no wider dtype that the host knows; of polygamma the host has a kernel that the tables lack.
        if name in LEFT or name.startswith(("fft_", "nansum", "nanmean", "polygamma")):
            continue
        for dtype in sorted(set(op.dtypesIfCUDA) - set(op.dtypes), key=str):
            if dtype != torch.complex32:  # The host has hardly any kernel for complex32.
                yield pytest.param(op, dtype, id=f"{name}-{dtype}".replace("torch.", ""))


def cast(tree: Any, dtype: torch.dtype, wide: torch.dtype) -> Any:
    return tree_map(lambda x: x.to(wide) if isinstance(x, Tensor) and x.dtype == dtype else x, tree)


def managed(tree: Any) -> Any:
    return tree_map(lambda x: x.to("managed") if isinstance(x, Tensor) else x, tree)


@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_it_is_computed_in_a_wider_dtype(op: Any, dtype: torch.dtype):
    wide = WIDE.get(dtype, torch.float64)
    compared = 0
    for sample in op.sample_inputs("cpu", dtype):
        given = (sample.input, sample.args, sample.kwargs)
        x, args, kwargs = cast(given, dtype, wide)
        expected = op(x, *args, **kwargs)
        x, args, kwargs = managed(given)
        actual = op(x, *args, **kwargs)
        for found, wanted in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
            assert found.device.type == "managed"
            narrow = wanted.to(dtype) if wanted.dtype == wide else wanted
            torch.testing.assert_close(found.cpu(), narrow, rtol=0, atol=0, equal_nan=True)
        compared += 1
    assert compared > 0


def test_a_kernel_of_the_hosts_own_is_not_left_for_a_wider_one():
    x = torch.rand(1000).half() + 0.5
    assert torch.equal(torch.polygamma(2, x), torch.polygamma(2, x.to("managed")).cpu())


def test_results_go_where_they_are_requested():
    x = torch.tensor([1, 2, 3, 3], device="managed")
    out = torch.zeros(4, dtype=torch.int64, device="managed")
    alias = out.view(4)
    assert torch.histc(x, 4, 0, 3, out=out) is out
    assert alias.tolist() == [0, 1, 1, 2]
    small = torch.empty(0, dtype=torch.int64, device="managed")
    torch.histc(x, 4, 0, 3, out=small)
    assert small.tolist() == [0, 1, 1, 2]
    half = torch.tensor([0.12345, 3.456], device="managed").half()
    assert half.round_(decimals=1) is half
    assert half.tolist() == pytest.approx([0.1, 3.5], rel=1e-3)
    assert half.dtype == torch.float16


def test_gradients_have_the_operands_dtype():
    x = torch.randn(1, 2, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    wide = x.bfloat16().float().requires_grad_()
    torch.nn.functional.avg_pool3d(wide, 2).square().sum().backward()
    narrow = x.bfloat16().to("managed").requires_grad_()
    torch.nn.functional.avg_pool3d(narrow, 2).square().sum().backward()
    assert narrow.grad.dtype == torch.bfloat16
    assert torch.allclose(narrow.grad.float().cpu(), wide.grad, rtol=2**-6)


def test_what_the_host_has_is_computed_as_it_is():
    x = torch.tensor([1.5, 2.5, 2.5], device="managed")
    assert torch.histc(x, 2, 1, 3).tolist() == [1.0, 2.0]
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.histc(x.bool(), 2)


def test_operands_that_do_not_agree_are_refused_as_the_host_refuses_them():
    x = torch.arange(4, device="managed")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.histc(x, 4, 0, 4, out=torch.empty(4, device="managed", dtype=torch.float64))
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.histc(x, 4, 0, 4, out=torch.empty(4, device="managed", dtype=torch.int32))
    scores, target = torch.ones(2, 3, device="managed").half(), torch.tensor([0, 1], device="managed")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.nn.functional.multi_margin_loss(scores, target, weight=torch.ones(3, device="managed"))


def test_a_mixture_of_experts_has_the_bits_of_the_cpu():
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
    )  # fmt: skip
    found = []
    for device in ("cpu", "managed"):
        torch.manual_seed(0)
        model = transformers.MixtralForCausalLM(config).to(device)
        tokens = (torch.arange(48).view(2, 24) % 64).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
        found.append([loss.detach().cpu(), *(p.detach().cpu() for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert innkeeper.stats()["ops"] > 0
