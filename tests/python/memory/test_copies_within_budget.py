"""Copies between the CPU and a GPU that the tensor nearly fills, if a kernel converts or gathers."""

from __future__ import annotations

from collections.abc import Callable

import innkeeper
import pytest

import torch
from torch import Tensor, nn

SIZE = 40_000  # 156.2 KiB of float32.
NODES = "sim:180KiB,host:16MiB"

READS: dict[str, Callable[[Tensor], object]] = {
    "every second": lambda x: x[::2].cpu(),
    "transposed": lambda x: x.view(100, 400).t().cpu(),
    "columns": lambda x: x.view(200, 200)[:, :150].cpu(),
    "converted": lambda x: x.to("cpu", torch.float64),
    "to half": lambda x: x.to("cpu", torch.float16),
    "a list": lambda x: x[::3].tolist(),
    "an array": lambda x: x[::2].cpu().numpy().tolist(),
    "into a view": lambda x: torch.zeros(SIZE * 2)[::2].copy_(x),
}
WRITES: dict[str, Callable[[Tensor], object]] = {
    "every second": lambda x: x[::2].copy_(torch.ones(SIZE // 2)),
    "by index": lambda x: x.__setitem__(slice(None, None, 2), torch.ones(SIZE // 2)),
    "transposed": lambda x: x.view(200, 200).copy_(torch.arange(SIZE).float().view(200, 200).t()),
    "converted": lambda x: x.copy_(torch.arange(SIZE, dtype=torch.float64)),
    "from a view": lambda x: x.copy_(torch.arange(2 * SIZE).float()[::2]),
}


def made(device: str) -> Tensor:
    return torch.arange(SIZE, dtype=torch.float32, device=device) / 3


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("pinned", [False, True])
def test_what_fits_can_be_read(name: str, pinned: bool, configure: Callable[[str], None]):
    configure(NODES)
    x = made("managed")
    if pinned:
        innkeeper.pin(x, "sim:0")
    got, expected = READS[name](x), READS[name](made("cpu"))
    assert torch.equal(got, expected) if isinstance(got, Tensor) else got == expected
    if pinned:
        innkeeper.unpin(x)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("evicted", [False, True])
def test_what_fits_can_be_written(name: str, evicted: bool, configure: Callable[[str], None]):
    configure(NODES)
    x, plain = made("managed"), made("cpu")
    if evicted:
        innkeeper.evict(x)
    WRITES[name](x)
    WRITES[name](plain)
    assert torch.equal(x.cpu(), plain)
    assert torch.equal((x + 1).cpu(), plain + 1), "and is computed with"


def test_what_is_pinned_is_written_where_it_is_or_not_at_all(configure: Callable[[str], None]):
    configure(NODES)
    x = made("managed")
    innkeeper.pin(x, "sim:0")
    with pytest.raises(torch.OutOfMemoryError):
        x.copy_(torch.arange(SIZE, dtype=torch.float64))
    assert torch.equal(x.cpu(), made("cpu"))
    innkeeper.unpin(x)


def test_a_checkpoint_of_another_type_is_loaded(configure: Callable[[str], None]):
    configure(NODES)
    model = nn.Linear(200, 200, bias=False).to("managed")
    state = {"weight": torch.arange(SIZE, dtype=torch.float64).view(200, 200) / 7}
    model.load_state_dict(state)
    assert torch.equal(model.weight.detach().cpu(), state["weight"].float())


def test_where_there_is_space_the_gpu_does_it(configure: Callable[[str], None]):
    configure("sim:1MiB,host:16MiB")
    x = made("managed")
    assert torch.equal(x[::2].cpu(), made("cpu")[::2])
    assert innkeeper.where(x) == ["sim:0"], "nothing was copied to the host first"
