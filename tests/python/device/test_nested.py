"""Nested tensors, strided and jagged: a buffer on the managed device, and the CPU's bits."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import innkeeper
import pytest
import torch.nn.functional as F

import torch
from torch import Tensor, nn

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Warnings of prototypes.
LAYOUTS = {"strided": torch.strided, "jagged": torch.jagged}


def rows(*lengths: int, width: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(length, width, generator=generator) for length in lengths]


def nested(device: str, layout: torch.layout = torch.strided) -> Tensor:
    return torch.nested.nested_tensor(rows(3, 5, 2), device=device, layout=layout)


def parts(x: Tensor) -> list[Tensor]:
    return [part.cpu() for part in x.unbind()] if x.is_nested else [x.cpu()]


def assert_same_bits(make: Callable[[str], Tensor]) -> None:
    found, expected = parts(make("managed")), parts(make("cpu"))
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and torch.equal(a, b)


WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(2))
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + x,
    "multiply": lambda x: x * 2.5,
    "linear": lambda x: F.linear(x, WEIGHT.to(x.device), WEIGHT[0].to(x.device)),
    "softmax": lambda x: F.softmax(x, -1),
    "layer norm": lambda x: F.layer_norm(x, (8,), WEIGHT[0].to(x.device), WEIGHT[1].to(x.device)),
    "gelu": F.gelu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "padded": lambda x: torch.nested.to_padded_tensor(x, -1.0),
    "clone": lambda x: x.clone(),
    "transposed": lambda x: x.transpose(1, 2).contiguous(),
    "product": lambda x: x @ x.transpose(1, 2),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "half": lambda x: x.to(torch.bfloat16).float(),
    "sum": lambda x: x.sum(-1, keepdim=True),
}


CASES = [(layout, name) for layout in LAYOUTS for name in OPERATORS]
CASES.remove(("jagged", "product"))  # The CPU refuses it.


@pytest.mark.parametrize(("layout", "name"), CASES)
def test_an_operator_has_the_bits_of_the_cpu(layout: str, name: str):
    assert_same_bits(lambda device: OPERATORS[name](nested(device, LAYOUTS[layout])))


def test_it_goes_to_the_device_and_back():
    there = nested("cpu").to("managed")
    assert there.is_nested and there.device.type == "managed" and there.size(0) == 3
    assert [tuple(part.shape) for part in there.unbind()] == [(3, 8), (5, 8), (2, 8)]
    back = there.cpu()
    assert back.device.type == "cpu"
    for a, b in zip(back.unbind(), rows(3, 5, 2), strict=True):
        assert torch.equal(a, b)
    there.unbind()[1].zero_()  # A part is a view.
    assert there.cpu().unbind()[1].abs().sum() == 0
    innkeeper.evict(there.unbind()[0])
    assert torch.equal(there.cpu().unbind()[0], rows(3, 5, 2)[0])


def test_gradients_have_the_bits_of_the_cpu():
    def gradients(device: str) -> Tensor:
        weight = WEIGHT.to(device).requires_grad_()
        x = torch.nested.nested_tensor(rows(3, 5, 2), device=device, requires_grad=True)
        y = F.gelu(F.linear(x, weight))
        torch.nested.to_padded_tensor(y, 0.0).square().sum().backward()
        assert x.grad is not None and x.grad.is_nested
        return torch.cat([weight.grad.cpu(), *(part.cpu() for part in x.grad.unbind())])

    assert_same_bits(gradients)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_has_the_bits_of_the_cpu(layout: str):
    def attend(device: str) -> Tensor:
        heads = [row.view(-1, 2, 4) for row in rows(3, 5, 2)]
        x = torch.nested.nested_tensor(heads, device=device, layout=LAYOUTS[layout]).transpose(1, 2)
        x = x.contiguous() if layout == "strided" else x
        return F.scaled_dot_product_attention(x, x, x).transpose(1, 2).contiguous()

    assert_same_bits(attend)


def encoder(device: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = torch.randn(3, 6, 16)
    mask = torch.arange(6) >= torch.tensor([[6], [4], [1]])
    return nn.TransformerEncoder(layer, 2).to(device).eval(), x.to(device), mask.to(device)


def test_an_encoder_takes_a_padding_mask():
    def encode(device: str) -> Tensor:
        model, x, mask = encoder(device)
        with torch.no_grad():
            return model(x, src_key_padding_mask=mask)

    assert_same_bits(encode)


def test_an_encoder_trains_with_a_padding_mask():
    def train(device: str) -> Tensor:
        model, x, mask = encoder(device)
        model.train()
        model(x, src_key_padding_mask=mask).square().sum().backward()
        return torch.cat([p.grad.cpu().flatten() for p in model.parameters()])

    assert_same_bits(train)


def copies(x: Tensor, directory: Path) -> dict[str, Tensor]:
    """The same tensor obtained in other ways."""
    torch.save(x, directory / "x.pt")
    torch.save(x.cpu(), directory / "on_cpu.pt")
    sizes = x._nested_tensor_size(), x._nested_tensor_strides(), x._nested_tensor_storage_offsets()
    assert {part.device.type for part in sizes} == {"cpu"}  # The same as on CUDA.
    return {
        "copy": copy.copy(x),
        "pickle": pickle.loads(pickle.dumps(x)),
        "load": torch.load(directory / "x.pt"),
        "load from the CPU's": torch.load(directory / "on_cpu.pt", map_location=x.device),
        "view": torch._nested_view_from_buffer(x.values(), *sizes),
        "view of managed sizes": torch._nested_view_from_buffer(x.values(), *(s.to(x.device) for s in sizes)),
        "copied view": torch._nested_view_from_buffer_copy(x.values(), *sizes),
        "from padded": torch._nested_from_padded(torch.nested.to_padded_tensor(x, 0.0), sizes[0]),
    }


def test_it_is_rebuilt_from_its_parts(tmp_path: Path):
    for name, made in copies(nested("managed"), tmp_path).items():
        assert made.device.type == "managed", name
        for a, b in zip(parts(made), rows(3, 5, 2), strict=True):
            assert torch.equal(a, b), name


def test_gradients_go_through_its_values():
    grads = []
    for device in ("cpu", "managed"):
        x = nested(device).requires_grad_()
        (x.values() * WEIGHT[0, 0].to(device)).square().sum().backward()
        assert x.grad is not None
        grads.append(parts(x.grad))
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_one_of_the_cpu_beside_one_of_the_device_moves():
    assert_same_bits(lambda device: nested("cpu") + nested(device))
    assert_same_bits(lambda device: nested(device) * nested("cpu"))
