"""Bugs that users of other systems met, in models and training: each as a test that this one passes.

Every test runs on simulated nodes too small for it, whose results stay hidden as long as they may. The rest
is in test_known_bugs_tensors.py; docs/design/correctness.md has the table.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Iterator

import innkeeper
import models
import pytest
import torch.nn.functional as F
from accelerators import KIND, here
from budget_fixture import Squeeze, flood, same

import torch
from torch import Tensor, nn

KiB = 1 << 10


def mlp(width: int = 128, layers: int = 6) -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def train(model: nn.Module, steps: int, width: int = 128) -> list[float]:
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    data = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, width, generator=data).to(device)
        loss = F.mse_loss(model(x), x.flip(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same_weights(managed: nn.Module, plain: nn.Module) -> None:
    for (name, ours), theirs in zip(managed.state_dict().items(), plain.state_dict().values(), strict=True):
        assert same(ours, theirs), name


def test_training_updates_the_weights_that_forward_reads(squeeze: Squeeze):
    """Accelerate #3770, #3785: with cpu_offload, training updates other objects than forward reads,
    silently.
    """
    plain, managed = mlp(), mlp().to("managed")
    squeeze(512 * KiB)
    before = [p.detach().cpu().clone() for p in managed.parameters()]
    losses = train(managed, 4)
    assert losses == train(plain, 4) and len(set(losses)) == 4
    assert not any(same(p, old) for p, old in zip(managed.parameters(), before, strict=True))
    assert_same_weights(managed, plain)


def test_a_split_model_needs_no_moves_of_inputs_and_losses(squeeze: Squeeze):
    """Transformers #24410, #29144: a model split over devices: "expected all tensors on the same device"."""
    plain = mlp(layers=4)
    parts = []
    for node, layers in ((here("sim:0"), plain[:2]), (here("sim:1"), plain[2:])):
        with innkeeper.on(node):
            parts.append(copy.deepcopy(layers).to("managed"))
    assert innkeeper.where(parts[0][0].weight) != innkeeper.where(parts[1][0].weight)
    squeeze(256 * KiB)
    x = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))
    loss = F.mse_loss(parts[1](parts[0](x.to("managed"))), x.to("managed"))
    loss.backward()
    flood(512 * KiB)
    expected = F.mse_loss(plain(x), x)
    expected.backward()
    assert loss.item() == expected.item()
    gradients = [p.grad for part in parts for p in part.parameters()]
    assert all(same(ours, p.grad) for ours, p in zip(gradients, plain.parameters(), strict=True))


def test_tied_weights_stay_tied(squeeze: Squeeze):
    """Accelerate #993, #1510, SGLang #36509, DeepSpeed #8376: offloading a tied weight makes two of it."""
    torch.manual_seed(1)
    model = models.Gpt(tied=True).to("managed")
    plain = models.Gpt(tied=True)
    plain.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    squeeze(192 * KiB)
    tokens = torch.randint(0, 96, (2, 32), generator=torch.Generator().manual_seed(2))
    for m, device in ((model.eval(), "managed"), (plain.eval(), "cpu")):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, foreach=True)
        for _ in range(3):
            innkeeper.evict(model)
            m(tokens.to(device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert model.head.weight is model.embed.weight
    assert model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    assert sum(1 for _ in model.parameters()) == sum(1 for _ in plain.parameters())
    assert_same_weights(model, plain)


def test_an_offloaded_layer_is_never_missing(squeeze: Squeeze):
    """Accelerate #512, #1197: KeyError, or tensors on "meta", when a layer is offloaded."""
    plain = mlp()
    model = copy.deepcopy(plain).to("managed")
    squeeze(192 * KiB)
    innkeeper.evict(model)
    flood(384 * KiB)
    assert {p.device.type for p in model.parameters()} == {"managed"}
    x = torch.randn(8, 128)
    assert same(model(x.to("managed")), plain(x))
    assert_same_weights(model, plain)


def test_parameters_are_whole_between_uses(squeeze: Squeeze):
    """DeepSpeed #3570, #846: parameters are empty outside of forward."""
    plain = mlp()
    model = copy.deepcopy(plain).to("managed")
    squeeze(192 * KiB)
    train(plain, 1)
    train(model, 1)
    flood(384 * KiB)
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.numel() == theirs.numel() and ours.untyped_storage().nbytes() == 4 * theirs.numel()
        assert ours.sum().item() == theirs.sum().item()


def test_running_statistics_survive_eviction(squeeze: Squeeze):
    """Hidden writes: native_batch_norm's schema does not say that it writes the running statistics.

    An offloader that trusts schemas drops the device's copy as clean, and the statistics never move.
    """
    torch.manual_seed(3)
    plain = nn.Sequential(*(nn.BatchNorm1d(2048) for _ in range(4)))
    model = copy.deepcopy(plain).to("managed")
    squeeze(384 * KiB)
    data = torch.Generator().manual_seed(6)
    for _ in range(3):
        x = torch.randn(16, 2048, generator=data) * 3 + 1
        plain(x)
        innkeeper.evict(
            model
        )  # the host's copy becomes the only one, and after the next forward a stale spare
        model(x.to("managed"))
        flood(768 * KiB)
    assert_same_weights(model, plain)
    assert not torch.equal(model[0].running_mean.cpu(), torch.zeros(2048))


class Refuses(torch.autograd.Function):
    """Raises in backward as long as `armed`."""

    armed = True

    @staticmethod
    def forward(context, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(context, gradient: Tensor) -> Tensor:
        if Refuses.armed:
            raise KeyError("in the middle of backward")
        return gradient * 1


def test_an_exception_in_backward_loses_nothing(squeeze: Squeeze):
    """DeepSpeed #2977 and others: after an exception in backward, hooks and buffers leave the model
    unusable.
    """
    plain = mlp()
    model = copy.deepcopy(plain).to("managed")
    squeeze(320 * KiB)
    x = torch.randn(16, 128, generator=torch.Generator().manual_seed(7))

    def loss(m: nn.Module, x: Tensor) -> Tensor:
        return m[3:](Refuses.apply(m[:3](x))).square().mean()

    Refuses.armed = True
    for _ in range(5):
        model.zero_grad()
        with pytest.raises(KeyError, match="middle of backward"):
            loss(model, x.to("managed")).backward()
        innkeeper.manager().check_invariants()
        stats = innkeeper.stats()["nodes"]
        assert all(node["resident"] == node["recount"] and node["pinned"] == 0 for node in stats.values())
    Refuses.armed = False
    model.zero_grad()
    loss(model, x.to("managed")).backward()
    loss(plain, x).backward()
    assert all(same(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True))


def test_moving_and_back_again_changes_no_weight(squeeze: Squeeze):
    """torch_memory_saver #71: pausing and resuming corrupts weights."""
    plain = mlp()
    model = copy.deepcopy(plain).to("managed")
    squeeze(320 * KiB)
    for round_ in range(6):
        assert train(model, 1) == train(plain, 1)
        innkeeper.evict(model)
        node = here(f"sim:{round_ % 2}")
        for layer in model[:2]:
            innkeeper.prefetch(layer, node)  # The program does not wait for it.
    assert_same_weights(model, plain)


def test_an_optimizer_keeps_its_parameters(squeeze: Squeeze):
    """Transformers #41708: Module.to replaces the parameters; the optimizer steps the unused old ones."""
    plain, model = mlp(), mlp()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, foreach=True) for m in (model, plain)]
    identity = [id(p) for p in model.parameters()]
    model.to("managed")
    squeeze(256 * KiB)
    assert [id(p) for p in model.parameters()] == identity
    x = torch.randn(16, 128)
    for m, optimizer in zip((model, plain), optimizers, strict=True):
        for _ in range(3):
            m(x.to(m[0].weight.device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert_same_weights(model.to("cpu"), plain)
    assert [id(p) for p in model.parameters()] == identity


def test_recomputed_dropout_draws_the_same_mask(squeeze: Squeeze):
    """DTR, and checkpointing in general: random numbers are drawn again for the recomputation,
    differently.
    """
    squeeze(256 * KiB)
    torch.manual_seed(1)
    once = models.Gpt(rerun=False).to("managed")
    again = models.Gpt(rerun=True).to("managed")
    again.load_state_dict(once.state_dict())
    tokens = torch.randint(0, 96, (2, 32), generator=torch.Generator().manual_seed(2)).to("managed")
    for model in (once, again):
        torch.manual_seed(3)
        model(tokens).square().mean().backward()
    for a, b in zip(once.parameters(), again.parameters(), strict=True):
        assert same(a.grad, b.grad.cpu())


def test_pickles_and_copies_keep_what_is_shared(squeeze: Squeeze):
    """PyTorch #86557, #62273 (DirectML): tensors without a storage of their own cannot be pickled or
    deep-copied.
    """
    model = nn.ModuleList(nn.Linear(128, 128, bias=False) for _ in range(4)).to("managed")
    model[3].weight = model[0].weight
    squeeze(128 * KiB)
    innkeeper.evict(model)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    for location in ("cpu", "managed"):
        buffer.seek(0)
        state = torch.load(buffer, map_location=location)
        assert state["0.weight"].data_ptr() == state["3.weight"].data_ptr()
        assert all(same(model.state_dict()[name], value.cpu()) for name, value in state.items())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        flood(256 * KiB)
        assert twin[3].weight is twin[0].weight and twin[0].weight is not model[0].weight
        assert all(same(a, b.cpu()) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
        with torch.no_grad():
            twin[0].weight.zero_()
        assert model[0].weight.abs().sum().item() > 0 and twin[3].weight.abs().sum().item() == 0


def test_gradients_of_many_uses_are_summed_once(squeeze: Squeeze):
    """PyTorch #151079: autograd sums into a buffer; one that was moved meanwhile must not be summed
    into twice.
    """
    torch.manual_seed(8)
    weight = torch.randn(128, 128)
    x = torch.randn(16, 128)
    gradients = []
    for device in ("cpu", "managed"):
        if device == "managed":
            squeeze(320 * KiB)
        w = weight.clone().to(device).requires_grad_()
        y = x.to(device)
        for _ in range(12):
            y = torch.tanh(y @ w + y)
        y.sum().backward()
        gradients.append(w.grad)
        flood(640 * KiB)
    assert same(gradients[1], gradients[0])


def test_threads_that_share_weights_do_not_take_them_from_each_other(squeeze: Squeeze):
    """Capuchin- and LMS-like swappers keep one list of tensors: a thread swaps out a tensor that another
    computes with.
    """
    plain = mlp()
    model = copy.deepcopy(plain).to("managed")
    squeeze(320 * KiB)
    failures: list[str] = []

    def work(seed: int) -> None:
        x = torch.randn(16, 128, generator=torch.Generator().manual_seed(seed))
        expected = torch.autograd.grad(plain(x).square().mean(), list(plain.parameters()))
        for _ in range(3):
            ours = torch.autograd.grad(model(x.to("managed")).square().mean(), list(model.parameters()))
            if not all(same(a, b) for a, b in zip(ours, expected, strict=True)):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_saved_activations_do_not_copy_weights(squeeze: Squeeze):
    """save_on_cpu packs every saved tensor, so weights that are used often are copied to the host as
    often.
    """
    torch.manual_seed(1)
    layer = nn.Linear(256, 256, bias=False).to("managed")
    squeeze(896 * KiB)
    x = torch.randn(4, 256).to("managed")
    y = x
    for _ in range(10):
        y = torch.tanh(layer(y))
    innkeeper.evict(layer)
    flood(1792 * KiB)
    held = innkeeper.stats()["nodes"]
    saved = 10 * 2 * x.numel() * 4 + layer.weight.numel() * 4
    assert (
        sum(node["replicas"] for node in held.values()) <= 2 * saved
    )  # Ten copies of the weight are 2.5 MiB.
    y.sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_an_operator_that_throws_leaves_nothing_pinned(squeeze: Squeeze):
    """Operands of a kernel that raised stayed pinned, until nothing could leave any more."""
    squeeze(64 * KiB)
    table = torch.arange(64.0, device="managed").view(8, 8)
    far = torch.tensor([3, 99], device="managed")
    for _ in range(20):
        if KIND == "sim":  # a GPU looks at indices in its kernel, and is lost by one that is too far
            with pytest.raises(IndexError):
                F.embedding(far, table)
        with pytest.raises(RuntimeError):
            torch.linalg.cholesky(-torch.eye(8, device="managed"))
    for node in innkeeper.stats()["nodes"].values():
        assert node["pinned"] == 0
    innkeeper.evict(table)
    flood(256 * KiB)
    assert same(table, torch.arange(64.0).view(8, 8))


@pytest.fixture
def kept() -> Iterator[list[Tensor]]:
    """Operands that a library's operator, innkeeper_keeps::keep, has kept."""
    operands: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        operands.append(x)
        return x * 2

    library = torch.library.Library("innkeeper_keeps", "FRAGMENT")
    library.define("keep(Tensor x) -> Tensor")
    for key in ("CPU", "CUDA"):  # Simulated nodes compute with the first, GPUs with the second.
        library.impl("keep", keep, key)
    yield operands
    operands.clear()


def test_what_an_operator_keeps_stays_where_it_is(squeeze: Squeeze, kept: list[Tensor]):
    """A library's operator kept its operand for later, and found other bytes there (I12)."""
    squeeze(64 * KiB)
    x = torch.arange(1000.0, device="managed")
    assert same(torch.ops.innkeeper_keeps.keep(x), torch.arange(1000.0) * 2)
    assert innkeeper.stats()["escaped"] == 1
    with pytest.raises(ValueError, match=r"real memory at (sim|cuda):[01] is still held by somebody"):
        innkeeper.evict(x)
    flood(256 * KiB)
    assert kept[0].sum().item() == x.sum().item() == 499500
    kept.clear()
    assert innkeeper.stats()["escaped"] == 0
    innkeeper.evict(x)
    assert same(x, torch.arange(1000.0))


def test_what_an_operator_keeps_outlives_its_tensor(squeeze: Squeeze, kept: list[Tensor]):
    """An operator kept its operand, the program released it, and another tensor got the memory (I12)."""
    squeeze(64 * KiB)
    torch.ops.innkeeper_keeps.keep(torch.arange(1000.0, device="managed"))
    flood(256 * KiB)
    assert torch.equal(kept[0].cpu(), torch.arange(1000.0))
    kept.clear()


def test_a_library_that_goes_takes_its_operators_along():
    """A later operator of the same name was read through Innkeeper's record of a dead one."""

    def add(n: int, x: Tensor, y: Tensor | None = None) -> None:
        x.add_(n)

    for round_ in range(40):
        library = torch.library.Library("innkeeper_again", "FRAGMENT")
        if round_ % 2:
            library.define("op(Tensor x) -> Tensor")
            library.impl("op", lambda x: x + 1, "CPU")
        else:
            library.define("op(int n, Tensor(a!) x, Tensor? y=None) -> ()")
            library.impl("op", add, "CPU")
        x = torch.zeros(100, device="managed")
        if round_ % 2:
            x = torch.ops.innkeeper_again.op(x)
        else:
            with innkeeper.on(here("sim:0")):
                innkeeper.prefetch(x.fill_(0), here("sim:1"))
            torch.ops.innkeeper_again.op(1, x)
        assert x.sum().item() == 100
        library._destroy()
        delattr(torch.ops, "innkeeper_again")


def test_a_librarys_view_is_a_view(squeeze: Squeeze):
    """A custom operator's result in its operand's storage became a copy: writes to it were lost."""
    squeeze(64 * KiB)
    library = torch.library.Library("innkeeper_views", "FRAGMENT")
    library.define("head(Tensor(a) x) -> Tensor(a)")
    library.impl("head", lambda x: x[:8], "CPU")
    x = torch.arange(1000.0, device="managed")
    head = torch.ops.innkeeper_views.head(x)
    innkeeper.evict(x)
    head.add_(1)
    flood(256 * KiB)
    assert head.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert same(x, torch.cat([torch.arange(1.0, 9.0), torch.arange(8.0, 1000.0)]))
