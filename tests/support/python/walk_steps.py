"""The steps of the random walk (walk.py): each does the same to managed tensors and to plain ones.

A step is a name and three numbers, which it reads modulo the number of candidates. So any part of a program
is a program, and a failing one can be shrunk by leaving steps out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import innkeeper
from accelerators import KIND

import torch
from torch import Tensor

MOST_SLOTS = 14
MOST_ELEMENTS = 4096
MOST_PINS = 2
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.int32)


class Wrong(AssertionError):
    """The managed side differs from the plain one."""


@dataclass(eq=False)
class Pair:
    ours: Tensor
    plain: Tensor
    pins: int = 0


@dataclass
class Worker:
    """One thread's tensors, and shared ones that no thread writes."""

    shared: list[Pair]
    nodes: list[str]  # Names of nodes to which a tensor may be sent.
    pairs: list[Pair] = field(default_factory=list)

    def own(self, n: int) -> Pair:
        if not self.pairs:
            CREATE(self, n, n, n)
        return self.pairs[n % len(self.pairs)]

    def any(self, n: int) -> Pair:
        return self.shared[n % len(self.shared)] if n % 5 == 0 and self.shared else self.own(n)

    def computing(self, n: int) -> str:
        names = [name for name in self.nodes if name.startswith(("sim", "cuda"))] or ["host"]
        return names[n % len(names)]

    def add(self, ours: Tensor, plain: Tensor) -> None:
        if plain.numel() > MOST_ELEMENTS or plain.untyped_storage().nbytes() > 8 * MOST_ELEMENTS:
            return
        if len(self.pairs) >= MOST_SLOTS:
            self.drop(0)
        self.pairs.append(Pair(ours, plain))

    def drop(self, n: int) -> None:
        pair = self.pairs.pop(n % len(self.pairs))
        for _ in range(pair.pins):
            innkeeper.unpin(pair.ours)

    def new(self, function: Callable[..., Tensor], *pairs: Pair) -> None:
        both = on_both(function, pairs)
        if both is not None:
            self.add(*both)


def on_both(function: Callable[..., Tensor], pairs: tuple[Pair, ...]) -> tuple[Tensor, Tensor] | None:
    """Runs the function on both sides. None if both refuse it; Wrong if one does."""
    try:
        ours, refused = function(*(pair.ours for pair in pairs)), None
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError) as error:
        ours, refused = None, error
    except ValueError as error:  # A pin forbids it, before anything was written.
        if "pinned" not in str(error):
            raise
        return None
    try:
        plain = function(*(pair.plain for pair in pairs))
    except (RuntimeError, IndexError) as error:
        if refused is None:
            raise Wrong(f"plain alone refuses: {error}") from error
        return None
    if refused is not None:
        raise Wrong(f"managed alone refuses: {refused}") from refused
    assert ours is not None
    return ours, plain


def in_both(function: Callable[..., Tensor], pairs: tuple[Pair, ...]) -> None:
    """The same for one that writes to its first; not if that shares memory, which fake GPUs do not see."""
    first, *others = (pair.plain.untyped_storage()._cdata for pair in pairs)
    if KIND == "sim" or (is_dense(pairs[:1]) and first not in others):
        on_both(function, pairs)


def bits(x: Tensor) -> Tensor:
    return x.detach().cpu().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def compare(pair: Pair) -> None:
    ours, plain = pair.ours, pair.plain
    if (ours.shape, ours.stride(), ours.dtype, ours.storage_offset()) != (
        plain.shape, plain.stride(), plain.dtype, plain.storage_offset(),
    ):  # fmt: skip
        raise Wrong(f"geometry {ours.shape} {ours.stride()} is not {plain.shape} {plain.stride()}")
    if plain.numel() and not torch.equal(bits(ours), bits(plain)):
        where = (bits(ours) != bits(plain)).nonzero()
        raise Wrong(
            f"{len(where)} of {plain.nbytes} bytes differ, the first at {where[0].item()};"
            f" shape {tuple(plain.shape)}, {plain.dtype}, at {innkeeper.where(ours)}"
        )


Step = Callable[[Worker, int, int, int], None]
STEPS: dict[str, Step] = {}
WEIGHTS: dict[str, int] = {}


def step(weight: int = 1) -> Callable[[Step], Step]:
    def register(function: Step) -> Step:
        STEPS[function.__name__] = function
        WEIGHTS[function.__name__] = weight
        return function

    return register


@step(5)
def create(w: Worker, a: int, b: int, c: int) -> None:
    dtype = DTYPES[a % len(DTYPES)]
    shape = [(b % MOST_ELEMENTS,), (1 + b % 60, 1 + c % 60), (1 + b % 15, 1 + c % 15, 1 + a % 15)][c % 3]
    plain = ((torch.arange(torch.Size(shape).numel()) * (1 + b) + c) % 251 - 100).view(shape).to(dtype)
    with innkeeper.on(w.computing(a)):
        if a % 3 == 0:
            w.add(
                torch.full(shape, b % 100, dtype=dtype, device="managed"),
                torch.full(shape, b % 100, dtype=dtype),
            )
        else:
            w.add(plain.to("managed", non_blocking=a % 2 == 0), plain)


CREATE = create


@step(4)
def view(w: Worker, a: int, b: int, c: int) -> None:
    def make(x: Tensor) -> Tensor:
        if x.dim() == 0:
            return x.view(1)
        d, n = b % x.dim(), x.shape[b % x.dim()]
        start = c % max(n, 1)
        return [
            lambda: x.narrow(d, start, (n - start) // 2),
            lambda: x.transpose(0, d),
            lambda: x.reshape(-1)[:: 1 + c % 4],
            lambda: x.select(d, start),
            lambda: x.unsqueeze(d).expand(*x.shape[:d], 2, *x.shape[d:]),
            lambda: x.view(torch.uint8),
            lambda: x.detach(),
            lambda: (
                x.as_strided((x.numel() // 3,), (2,), x.storage_offset()) if x.is_contiguous() else x.view(-1)
            ),
            lambda: x.diagonal() if x.dim() > 1 else x.flip(0),
        ][a % 9]()

    w.new(make, w.own(c))


def settle() -> None:
    """Synchronizes as a program for CUDA does before it touches memory of a non-blocking copy."""
    if KIND != "sim":
        torch.managed.synchronize()


def rows(x: Tensor, *numbers: int) -> Tensor:
    """Indices. They may be out of range, which is an error; on GPUs one that ends the process."""
    if KIND != "sim":
        size = x.shape[0] if x.dim() else 1
        numbers = tuple(number % size for number in numbers) if size else ()
    return torch.tensor(numbers, device=x.device, dtype=torch.long)


@step(6)
def in_place(w: Worker, a: int, b: int, c: int) -> None:
    def change(x: Tensor) -> Tensor:
        return [
            lambda: x.add_(b % 7),
            lambda: x.mul_(3),
            lambda: x.neg_(),
            lambda: x.zero_(),
            lambda: x.clamp_(-50, 50),
            lambda: x.copy_(torch.full((1,), b % 50)),
            lambda: x.fill_(c % 90),
            lambda: x.sub_(x),
            lambda: x.t_() if x.dim() == 2 else x.abs_(),
            lambda: x[: 1 + c % 9].add_(1) if x.dim() else x.add_(1),
            lambda: x.index_fill_(0, rows(x, b % 40), 4),
            lambda: x.masked_fill_(x > 3, 1),
        ][a % 12]()

    in_both(change, (w.own(c),))


@step(3)
def write_from(w: Worker, a: int, b: int, c: int) -> None:
    to, source = w.own(a), w.any(b)
    kind = c % 5

    def write(x: Tensor, y: Tensor) -> Tensor:
        if kind == 0:
            return x.copy_(y)
        if kind == 1:
            return x.add_(y.reshape(-1)[:1].to(x.dtype))
        if kind == 2:
            return x.copy_(y.cpu().reshape(-1)[:1].clone(), non_blocking=True)
        if kind == 3:
            return x.mul_(y)
        x[...] = y.reshape(-1)[:1] if y.numel() else 1
        return x

    in_both(write, (to, source))


@step(6)
def compute(w: Worker, a: int, b: int, c: int) -> None:
    def one(x: Tensor, y: Tensor) -> Tensor:
        same = y if y.shape == x.shape else y.reshape(-1)[:1].to(x.dtype)
        flat = x.reshape(-1)
        return [
            lambda: x + same,
            lambda: x * same,
            lambda: torch.maximum(x, same),
            lambda: flat.float().sum(0, keepdim=True),
            lambda: flat.cumsum(0),
            lambda: flat.sort(stable=True).values,
            lambda: torch.cat([flat[:300], y.reshape(-1)[:300].to(x.dtype)]),
            lambda: torch.where(x > 0, x, same),
            lambda: flat[:64].float().view(8, 8) @ flat[:64].float().view(8, 8).t(),
            lambda: flat.index_select(0, rows(flat, b % 50, c % 3)),
            lambda: flat.float().softmax(0),
            lambda: flat[flat > b % 20],
            lambda: x.clone(memory_format=torch.contiguous_format),
            lambda: x.to(DTYPES[c % len(DTYPES)], copy=True),  # Never a shared tensor itself.
            lambda: x.flip(0) if x.dim() else x + 1,
            lambda: flat.topk(min(5, flat.numel())).values,
            lambda: torch.nn.functional.conv1d(
                flat[:96].float().view(1, 3, 32), torch.ones(2, 3, 5, device=x.device)
            ),
        ][a % 17]()

    w.new(one, w.any(b), w.any(c))


@step(2)
def gradient(w: Worker, a: int, b: int, c: int) -> None:
    def grad(x: Tensor, y: Tensor) -> Tensor:
        leaf = x.detach().float().requires_grad_()
        other = y.detach().float().reshape(-1)[:1]
        loss = (torch.tanh(leaf * 0.01) * (leaf + other.sum())).sum() + leaf.square().sum()
        return torch.autograd.grad(loss, leaf)[0]

    w.new(grad, w.any(b), w.any(c))


@step(3)
def out(w: Worker, a: int, b: int, c: int) -> None:
    def write(z: Tensor, x: Tensor, y: Tensor) -> Tensor:
        other = y if y.shape == x.shape else y.reshape(-1)[:1]
        function = (torch.add, torch.mul, torch.sub)[a % 3]
        return function(x, other, out=z)

    target = w.own(c)
    if target.pins == 0:
        in_both(write, (target, w.any(a), w.any(b)))


@step(2)
def foreach(w: Worker, a: int, b: int, c: int) -> None:
    w.own(a)
    chosen = tuple(w.pairs[b % len(w.pairs) :][: 2 + c % 8])

    def write(*xs: Tensor) -> Tensor:
        if c % 2:
            torch._foreach_mul_(list(xs), 2)
        else:
            torch._foreach_add_(list(xs), [n % 5 for n in range(len(xs))])
        return xs[0]

    # One by one: when the managed side refuses, a part may be written already, as on the plain one.
    if all(pair.plain.dtype.is_floating_point and not pair.pins for pair in chosen) and is_dense(chosen):
        in_both(write, chosen)


def is_dense(pairs: tuple[Pair, ...]) -> bool:
    return all(pair.plain.numel() == 0 or 0 not in pair.plain.stride() for pair in pairs)


@step(2)
def through_the_cpu(w: Worker, a: int, b: int, c: int) -> None:
    pair = w.any(c)
    carried = pair.ours.to("cpu", non_blocking=a % 2 == 0)
    settle()
    w.add(carried.to("managed", non_blocking=b % 2 == 0), pair.plain.to("cpu", copy=True))
    settle()
    if carried.numel() and 0 not in carried.stride():
        carried.zero_()  # A managed non-blocking copy has read its source by now.


@step(2)
def resize(w: Worker, a: int, b: int, c: int) -> None:
    def change(x: Tensor) -> Tensor:
        old = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        x.resize_(b % MOST_ELEMENTS)
        if x.numel() > old:
            x[max(old, 0) :].fill_(7)  # New elements have no contents to compare.
        return x

    pair = w.own(c)
    if pair.plain.is_contiguous() and pair.plain.storage_offset() == 0 and not pair.pins:
        in_both(change, (pair,))


@step(1)
def free_storage(w: Worker, a: int, b: int, c: int) -> None:
    """Frees a storage that one tensor has for itself, and fills it again."""
    pair = w.own(c)
    mine = pair.plain.untyped_storage().data_ptr()
    alone = sum(p.plain.untyped_storage().data_ptr() == mine for p in w.pairs) == 1
    if not alone or pair.pins or 0 in pair.plain.stride():
        return

    def change(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        nbytes = storage.nbytes()
        storage.resize_(0)
        storage.resize_(nbytes)
        # Fills the whole storage: a larger tensor may have been resized to this one, and may be again.
        torch.empty(0, dtype=torch.uint8, device=x.device).set_(storage).fill_(b % 30)
        return x.fill_(b % 30)

    in_both(change, (pair,))


@step(1)
def share(w: Worker, a: int, b: int, c: int) -> None:
    to, source = w.own(a), w.own(b)
    kind = c % 3
    if to.pins or to is source or to.plain.dtype != source.plain.dtype:
        return

    def change(x: Tensor, y: Tensor) -> Tensor:
        if kind == 0:
            return x.set_(y)
        if kind == 1:
            x.data = y
            return x
        return x.set_(y.untyped_storage(), y.storage_offset(), y.size(), y.stride())

    in_both(change, (to, source))


@step(2)
def read(w: Worker, a: int, b: int, c: int) -> None:
    compare(w.any(c))


@step(1)
def read_real(w: Worker, a: int, b: int, c: int) -> None:
    pair = w.any(c)
    mine = pair.plain.untyped_storage().data_ptr()
    if any(each.pins and each.plain.untyped_storage().data_ptr() == mine for each in w.pairs):
        # A tensor held at another node cannot be written here, even if the pin is on a view of it.
        return
    write = a % 4 == 0 and all(pair is not p for p in w.shared) and pair.plain.numel() and is_dense((pair,))
    with innkeeper.resident(pair.ours, None if b % 2 else w.computing(b), write=bool(write)) as real:
        if write:
            real.add_(1)
            pair.plain.add_(1)
        elif real.numel() and not torch.equal(bits(real), bits(pair.plain)):
            raise Wrong("the real tensor differs")
        del real


@step(3)
def pin(w: Worker, a: int, b: int, c: int) -> None:
    pair = w.own(c)
    if a % 2 == 0 and sum(p.pins for p in w.pairs) < MOST_PINS:
        innkeeper.pin(pair.ours, None if b % 3 == 0 else w.computing(b))
        pair.pins += 1
        return
    for each in w.pairs:
        if each.pins:
            innkeeper.unpin(each.ours)
            each.pins -= 1
            return


@step(4)
def prefetch(w: Worker, a: int, b: int, c: int) -> None:
    innkeeper.prefetch(w.any(c).ours, w.computing(b))


@step(4)
def evict(w: Worker, a: int, b: int, c: int) -> None:
    try:
        innkeeper.evict(w.any(c).ours)
    except ValueError as error:
        if "pinned" not in str(error):
            raise
    except RuntimeError as error:  # Another thread reads a shared tensor.
        if "in use" not in str(error):
            raise


@step(3)
def delete(w: Worker, a: int, b: int, c: int) -> None:
    if w.pairs:
        w.drop(c)
