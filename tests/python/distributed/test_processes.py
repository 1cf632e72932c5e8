"""Managed tensors between processes, and between libraries of one process (DLPack)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import innkeeper
import numpy as np
import pytest
from budget_fixture import Squeeze, flood
from processes import RunProgram
from torch.utils.dlpack import to_dlpack

import torch
from torch import Tensor, multiprocessing, nn

KiB = 1 << 10
COPIES = "goes to another process as a copy"


@pytest.fixture(params=["spawn", "forkserver"])
def context(workers: Callable[[str], Any], request: pytest.FixtureRequest) -> Any:
    return workers(request.param)


@pytest.fixture(params=sorted(multiprocessing.get_all_sharing_strategies()))
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy(request.param)
    yield request.param
    multiprocessing.set_sharing_strategy(before)


def answer(questions: Any, answers: Any, greeting: Tensor) -> None:
    """A process that doubles received tensors in place, and returns their values."""
    warnings.simplefilter("ignore")
    answers.put(greeting)
    while (tensors := questions.get()) is not None:
        for x in tensors:
            with torch.no_grad():
                x.mul_(2)
        answers.put(tensors)


def things_to_send() -> list[Tensor]:
    x = torch.arange(6.0, device="managed")
    return [
        x,
        x[2:4],  # Shares x's storage.
        nn.Parameter(torch.ones(2, 3, device="managed").t()),
        torch.empty(0, 3, device="managed"),
        torch.ones(3, device="managed", dtype=torch.bfloat16)[1:],
        torch.ones(2),
        torch.eye(2, device="managed").to_sparse(),
    ]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_queue_carries_copies_that_share_among_themselves(context: Any, strategy: str):
    questions, answers = context.Queue(), context.Queue()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        process = context.Process(
            target=answer, args=(questions, answers, torch.full((2,), 7.0, device="managed"))
        )
        process.start()
        try:
            assert answers.get(timeout=120).tolist() == [7, 7]
            sent = things_to_send()
            questions.put(sent)
            got = answers.get(timeout=120)
        finally:
            questions.put(None)
            process.join()
    assert any(COPIES in str(warning.message) for warning in said)
    assert [x.device.type for x in got] == [x.device.type for x in sent]
    assert [type(x) for x in got] == [type(x) for x in sent]
    assert [x.layout for x in got] == [x.layout for x in sent]
    assert got[0].tolist() == [0, 2, 8, 12, 8, 10] and got[1].tolist() == [8, 12]  # x[2:4] was doubled twice.
    assert got[2].tolist() == [[2, 2]] * 3 and got[2].stride() == sent[2].stride() and got[2].requires_grad
    assert (
        got[3].shape == (0, 3)
        and got[4].tolist() == [2, 2]
        and got[6].to_dense().tolist() == [[2, 0], [0, 2]]
    )
    assert sent[0].tolist() == [0, 1, 2, 3, 4, 5]  # The sender's tensors are its own.
    got[0].zero_()
    assert got[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    "share",
    [
        lambda x: x.share_memory_(),
        lambda x: x.untyped_storage().share_memory_(),
        lambda x: x.storage().share_memory_(),
        lambda x: nn.ParameterList([nn.Parameter(x)]).share_memory(),
    ],
    ids=["tensor", "storage", "typed storage", "module"],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_memory_is_not_shared_and_says_so(share: Any):
    x = torch.ones(3, device="managed")
    assert not x.is_shared() and not x.untyped_storage().is_shared()
    with pytest.raises(RuntimeError, match="belongs to one process: share it on the CPU"):
        share(x)
    assert torch.ones(3).share_memory_().is_shared() and not torch.ones(3).is_shared()


def train_shared(shared: nn.Module, steps: int) -> None:
    """Hogwild: computes on the device with the shared parameters, and writes them."""
    device = nn.Linear(8, 1).to("managed")
    for _ in range(steps):
        device.load_state_dict(shared.state_dict())
        loss = device(torch.ones(4, 8, device="managed")).square().mean()
        gradients = torch.autograd.grad(loss, list(device.parameters()))
        with torch.no_grad():
            for p, gradient in zip(shared.parameters(), gradients, strict=True):
                p.sub_(gradient.cpu(), alpha=0.01)


def test_processes_train_one_model_that_is_shared_on_the_cpu(workers: Callable[[str], Any]):
    context = workers("spawn")
    shared = nn.Linear(8, 1)
    shared.share_memory()
    before = shared(torch.ones(1, 8)).square().item()
    workers = [context.Process(target=train_shared, args=(shared, 20)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert shared(torch.ones(1, 8)).square().item() < before / 4


def total(x: Tensor) -> Tensor:
    return x.sum() * 2


@pytest.mark.filterwarnings(f"ignore:.*{COPIES}")
def test_a_pool_maps_over_managed_tensors(context: Any, squeeze: Squeeze):
    rows = torch.arange(8192.0, device="managed").reshape(4, 2048)
    squeeze(40 * KiB)
    flood(64 * KiB)
    with context.Pool(2) as pool:
        sums = pool.map(total, list(rows))
    assert torch.equal(torch.stack(sums).cpu(), (torch.arange(8192.0).reshape(4, 2048).sum(1) * 2))


class Rows(torch.utils.data.Dataset[Tensor]):
    def __init__(self) -> None:
        self.rows = torch.arange(40.0, device="managed").reshape(10, 4)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.rows[index] + 1


@pytest.mark.filterwarnings(f"ignore:.*{COPIES}")
def test_workers_of_a_data_loader_make_managed_batches(workers: Callable[[str], Any]):
    context = workers("spawn")
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context=context)
    batches = [batch.tolist() for batch in loader]
    assert batches == [batch.tolist() for batch in (torch.arange(40.0).reshape(10, 4) + 1).split(4)]


FORKS = """
import torch, innkeeper, warnings
from torch import multiprocessing

def ones(n):
    return torch.ones(n, device="managed")

warnings.simplefilter("ignore")
if {used}:
    ones(1)
with multiprocessing.get_context("fork").Pool(2) as pool:
    print([x.tolist() for x in pool.map(ones, [1, 2])])
    print(pool.map(torch.Tensor.sum, [ones(2), ones(3)]))
"""


def test_forked_workers_have_the_device_unless_it_was_used_before(run_python: RunProgram):
    done = run_python("-c", FORKS.format(used=False))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[[1.0], [1.0, 1.0]]",
        "[tensor(2., device='managed:0'), tensor(3., device='managed:0')]",
    ]
    done = run_python("-c", FORKS.format(used=True))
    assert done.returncode != 0
    assert "cannot be used in a process that was forked after its first use" in done.stderr.splitlines()[-1]


def test_from_dlpack_shares_the_memory(squeeze: Squeeze):
    x = torch.arange(4096.0, device="managed").reshape(64, 64)
    squeeze(48 * KiB)
    for part in (x, x[3:7, ::2], x.t(), x[:0]):
        for given in (part, to_dlpack(part), part.__dlpack__(), part.__dlpack__(max_version=(1, 0))):
            y = torch.from_dlpack(given)
            assert y.device == x.device and y.stride() == part.stride() and torch.equal(y.cpu(), part.cpu())
            y.add_(1)
            flood(64 * KiB)
            assert torch.equal(y.cpu(), part.cpu())
    y = torch.from_dlpack(x[1])
    expected = x[1].tolist()
    del x, part
    gc.collect()
    flood(64 * KiB)
    assert y.tolist() == expected  # The new tensor keeps the memory.


def test_from_dlpack_copies_where_it_must():
    x = torch.arange(6.0, device="managed")
    assert torch.from_dlpack(x, device="cpu").tolist() == x.tolist()
    assert torch.from_dlpack(torch.arange(3.0), device="managed").tolist() == [0, 1, 2]
    assert torch.from_dlpack(np.arange(3.0), device="managed").device.type == "managed"
    assert np.from_dlpack(x, device="cpu").tolist() == x.tolist()
    copied = torch.from_dlpack(x, copy=True)
    copied.zero_()
    assert x.sum().item() == 15
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(np.arange(3.0), device="managed", copy=False)


def test_libraries_that_need_an_address_are_refused():
    x = torch.arange(6.0, device="managed")
    for ask, line in {
        lambda: np.from_dlpack(x): "Unsupported device",
        lambda: np.from_dlpack(x, device="cpu", copy=False): "[Cc]annot",
        lambda: np.asarray(x): "Use Tensor.cpu",
        lambda: x.numpy(): "Use Tensor.cpu",
        lambda: torch.from_dlpack(x.clone().requires_grad_()): "detach",
    }.items():
        with pytest.raises(Exception, match=line):
            ask()


def test_numpy_functions_take_what_they_take_of_other_accelerators():
    x = torch.arange(6.0, device="managed")
    assert (x + np.float32(1)).device == x.device and float(np.float64(x[2])) == 2
    assert np.sum(x.numpy(force=True)) == 15
    for ask in (
        lambda: np.add(x, 1),
        lambda: np.isnan(x),
        lambda: np.array([x[0], x[1]]),
        lambda: x * np.ones(6),
    ):
        with pytest.raises(TypeError, match="can't convert managed:0 device type tensor to numpy"):
            ask()


def test_a_use_of_cudas_addresses_names_what_gives_them():
    x = torch.ones(2, 3, device="managed")
    assert not hasattr(x, "__cuda_array_interface__") and not hasattr(x, "__array_interface__")
    with pytest.raises(AttributeError, match=r"of \(2, 3\), torch.float32: .* innkeeper.resident"):
        _ = x.__cuda_array_interface__
    with pytest.raises(AttributeError, match="non-CUDA tensor type"):
        _ = torch.ones(1).__cuda_array_interface__


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_borrows_has_bounds_and_needs_its_tensor():
    x = torch.arange(6.0, device="managed")
    y = torch.from_dlpack(x[2:4])
    assert innkeeper.where(y) == innkeeper.where(x)
    y[1] = 9
    assert x.tolist() == [0, 1, 2, 9, 4, 5]
    with pytest.raises(RuntimeError, match="not resizable"):
        torch.add(torch.ones(9, device="managed"), 1, out=y)
    too_long = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, 25)
    with pytest.raises(RuntimeError, match="25 bytes from byte 0 on of a managed tensor that has 24"):
        too_long.cpu()
    alone = torch._C._construct_storage_from_data_pointer(x.data_ptr(), x.device, 24)
    del x, y, too_long
    with pytest.raises(RuntimeError, match="that is gone"):
        alone.cpu()
