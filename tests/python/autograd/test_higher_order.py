"""Higher-order operators under autocast: the operators inside cast, and attention casts by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

import torch
from torch import Tensor, nn

Program = Callable[[Tensor, nn.Module], Tensor]


def with_scan(x: Tensor, layer: nn.Module) -> Tensor:
    u = torch.tanh(layer(x))
    out: Tensor = scan(lambda c, e: (c * 0.5 + e, (c * 0.5 + e) * 2), torch.zeros_like(u[0]), u)[1]
    return out


def with_while(x: Tensor, layer: nn.Module) -> Tensor:
    with torch.no_grad():
        start = layer(x)
        out: Tensor = while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, (y @ y.t() @ y).tanh()), (
            torch.zeros((), dtype=torch.int64, device=x.device), start))[1]  # fmt: skip
    return out


def with_attention(x: Tensor, layer: nn.Module) -> Tensor:
    with torch.no_grad():  # the CPU has no backward pass of it
        q, k = layer(x).view(1, 2, 8, 8).float(), x.detach().view(1, 2, 8, 8)
        out: Tensor = flex_attention(q, k, k, score_mod=lambda score, b, h, i, j: score + (i - j))
    return out


PROGRAMS: dict[str, Program] = {
    "cond": lambda x, layer: torch.cond(
        x.mean() > 0, lambda x: torch.relu(layer(x)) * 2, lambda x: layer(x).sin(), (x,)
    ),
    "scan": with_scan,
    "while_loop": with_while,
    "flex_attention": with_attention,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_passes_into_them(configure: Callable[[str], None], name: str, enabled: bool) -> None:
    configure("sim:64MiB,host:1GiB")
    outs = []
    for device in ("cpu", "managed"):
        torch.manual_seed(0)
        layer = nn.Linear(16, 16).to(device)
        x = torch.randn(8, 16).to(device).requires_grad_()
        with torch.autocast(device, torch.bfloat16, enabled=enabled):
            out = PROGRAMS[name](x, layer)
        if out.requires_grad:
            out.float().sum().backward()
            assert x.grad is not None and x.grad.isfinite().all()
        outs.append(out.detach().cpu())
    cpu, managed = outs
    assert managed.dtype == (torch.bfloat16 if enabled else torch.float32)
    assert torch.equal(cpu, managed)
