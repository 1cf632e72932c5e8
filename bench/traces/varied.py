"""Training programs whose steps differ, as real ones' do; ``bench/variation.py`` records and plays them.

The recording computes nothing (``data=off``), so a program draws the decisions that it would base on numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from models import Bottleneck, UNet, gpt
from torch.nn import functional as F

import torch
from torch import Tensor, nn

Step = Callable[[int], None]
DEVICE = "managed"
WORDS, LENGTH, BATCH = 8192, 512, 8


def small_gpt(layers: int = 4, width: int = 768) -> nn.Module:
    """A GPT whose kernels take about as long as its activations' copies."""
    return gpt(width, layers, width // 64, LENGTH, WORDS)


def critic(width: int = 128) -> nn.Module:
    """Images to scores."""
    return nn.Sequential(
        nn.Conv2d(3, 4 * width, 3, 2, 1), nn.LeakyReLU(0.2),
        Bottleneck(4 * width, width, 1), Bottleneck(4 * width, width, 2), Bottleneck(4 * width, width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 1),
    )  # fmt: skip


def tokens(batch: int = BATCH, length: int = LENGTH) -> Tensor:
    """(batch, length) words."""
    return torch.zeros(batch, length, dtype=torch.long, device=DEVICE)


def images(batch: int = 32, side: int = 64) -> Tensor:
    """(batch, 3, side, side)."""
    return torch.zeros(batch, 3, side, side, device=DEVICE)


def words_loss(model: nn.Module, x: Tensor) -> Tensor:
    """Of the next words."""
    return F.cross_entropy(model(x).flatten(0, 1), x.flatten())


def adam(*models: nn.Module, **options: bool) -> torch.optim.Optimizer:
    """AdamW over the models' parameters, one operator each unless ``options`` say otherwise."""
    return torch.optim.AdamW((p for m in models for p in m.parameters()), **(options or {"foreach": False}))


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of it."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def accumulated(draw: Random, most: int, drawn: bool = True) -> Step:
    """As many micro-batches as are drawn before each step of the optimizer."""
    model = small_gpt()
    optimizer = adam(model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        for _ in range(draw.randint(2, most) if drawn else most):
            words_loss(model, tokens(4)).backward()
        optimizer.step()

    return step


def skipped(draw: Random, share: float) -> Step:
    """Steps of the optimizer are skipped, as GradScaler does."""
    model = small_gpt()
    optimizer = adam(model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        words_loss(model, tokens()).backward()
        if draw.random() >= share:
            optimizer.step()

    return step


def clipped(draw: Random) -> Step:
    """Gradients are clipped in half of the steps."""
    model = small_gpt()
    optimizer = adam(model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        words_loss(model, tokens()).backward()
        if draw.random() < 0.5:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()

    return step


def adversarial(draw: Random, rounds: Callable[[Random], int], lazy: int = 0) -> Step:
    """A critic is trained as often as ``rounds`` says for each step of the generator."""
    generator, judge = UNet(width=32, depth=3), critic()
    makes, judges = adam(generator), adam(judge)

    def step(i: int) -> None:
        real = images()
        for _ in range(rounds(draw)):
            fake = generator(images()).detach()
            loss = judge(fake).mean() - judge(real).mean()
            if lazy and i % lazy == 0:
                loss = loss + judge(real * 0.5 + fake * 0.5).square().mean()
            update(judges, loss)
        update(makes, -judge(generator(images())).mean())

    return step


def lengths(draw: Random, choices: list[int]) -> Step:
    """The length of the sequences is drawn."""
    model = small_gpt()
    optimizer = adam(model)
    return lambda _: update(optimizer, words_loss(model, tokens(length=draw.choice(choices))))


def batches(draw: Random, every: int) -> Step:
    """An epoch's last batch is smaller."""
    model = small_gpt()
    optimizer = adam(model)
    left = draw.randint(1, BATCH - 1)
    return lambda i: update(optimizer, words_loss(model, tokens(left if i % every == every - 1 else BATCH)))


def then(draw: Random, every: int, model: nn.Module, also: Callable[[], None]) -> Step:
    """Trains the model, and does something without gradients every few steps."""
    optimizer = adam(model)
    first = draw.randrange(every)

    def step(i: int) -> None:
        update(optimizer, words_loss(model, tokens()))
        if i % every == first:
            with torch.no_grad():
                also()

    return step


def evaluated(draw: Random, every: int, times: int) -> Step:
    """Some batches are evaluated every few steps."""
    model = small_gpt()

    def evaluate() -> None:
        for _ in range(times):
            words_loss(model, tokens(2 * BATCH))

    return then(draw, every, model, evaluate)


def several(draw: Random, count: int, drawn: bool) -> Step:
    """Several models, of which each step trains one."""
    models = [small_gpt(layers=2 + i) for i in range(count)]
    optimizers = [adam(model) for model in models]

    def step(i: int) -> None:
        which = draw.randrange(count) if drawn else i % count
        update(optimizers[which], words_loss(models[which], tokens()))

    return step


def averaged(draw: Random, every: int) -> Step:
    """A running average of the weights every few steps."""
    model, average = small_gpt(), small_gpt().requires_grad_(False)

    def average_weights() -> None:
        for mean, now in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(now, 0.01)

    return then(draw, every, model, average_weights)


class Dropped(nn.Module):
    """A GPT whose layers are left out by chance, from the first or but for some."""

    def __init__(self, draw: Random, share: float = 0.0, shortened: bool = False) -> None:
        super().__init__()
        self.gpt = small_gpt(layers=6)
        self.draw, self.share, self.shortened = draw, share, shortened

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length) to (batch, length, words)."""
        gpt = self.gpt
        y = gpt.embedding(x) + gpt.place.weight[: x.shape[1]]
        layers = list(gpt.layers)
        if self.shortened:
            layers = layers[: self.draw.randint(3, len(layers))]
        for layer in layers:
            if self.draw.random() >= self.share:
                y = layer(y)
        return gpt.head(gpt.norm(y))


def layers(draw: Random, **form: bool | float) -> Step:
    """Layers are dropped by chance, or the model ends early."""
    model = Dropped(draw, **form)  # type: ignore[arg-type]
    optimizer = adam(model)

    def step(_: int) -> None:
        optimizer.zero_grad()
        words_loss(model, tokens()).backward()
        optimizer.step()

    return step


def heads(draw: Random) -> Step:
    """One task of several is drawn, each with a head of its own behind a common trunk."""
    trunk = gpt(768, 4, 12, LENGTH, 768)
    tops = nn.ModuleList(
        nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 1000)) for _ in range(4)
    )
    optimizer = adam(trunk, tops)

    def step(_: int) -> None:
        top = tops[draw.randrange(len(tops))]
        update(optimizer, top(trunk(tokens())).square().mean())

    return step


def frozen(draw: Random) -> Step:
    """The trunk is frozen, and thawed again, at steps that are drawn."""
    model = small_gpt()
    optimizer = adam(model)
    changes = set(draw.sample(range(8, 55), 3))

    def step(i: int) -> None:
        if i in changes:
            for parameter in model.layers.parameters():  # type: ignore[union-attr]
                parameter.requires_grad_(not parameter.requires_grad)
        optimizer.zero_grad(set_to_none=True)
        words_loss(model, tokens()).backward()
        optimizer.step()

    return step


def policy(draw: Random) -> Step:
    """Actions are sampled for a while; then come some epochs of training on them."""
    model = small_gpt(layers=3)
    optimizer = adam(model)

    def step(_: int) -> None:
        with torch.no_grad():
            for _ in range(draw.randint(3, 8)):
                model(tokens(2))
        for _ in range(draw.randint(1, 4)):
            update(optimizer, words_loss(model, tokens(4)))

    return step


def taught(draw: Random) -> Step:
    """A teacher is asked in half of the steps."""
    teacher, student = small_gpt(layers=6).requires_grad_(False), small_gpt(layers=3)
    optimizer = adam(student)

    def step(_: int) -> None:
        loss = words_loss(student, tokens())
        if draw.random() < 0.5:
            with torch.no_grad():
                wanted = teacher(tokens()).softmax(-1)
            loss = loss + (student(tokens()).log_softmax(-1) * wanted).mean()
        update(optimizer, loss)

    return step


def conditioned(draw: Random) -> Step:
    """Diffusion that is conditioned on its own guess in half of the steps."""
    model = UNet(width=64, depth=3)
    optimizer = adam(model)

    def step(_: int) -> None:
        x = images()
        if draw.random() < 0.5:
            with torch.no_grad():
                x = x + model(x)
        update(optimizer, F.mse_loss(model(x), images()))

    return step


def fused(draw: Random, **form: bool) -> Step:
    """One operator updates all parameters; lengths are drawn of two."""
    model = small_gpt()
    optimizer = adam(model, **form)
    return lambda _: update(optimizer, words_loss(model, tokens(length=draw.choice([384, 512]))))


def unrolled(draw: Random) -> Step:
    """Recurrence by hand over as many steps as are drawn."""
    cell, head = nn.GRUCell(1024, 1024), nn.Linear(1024, WORDS)
    embedding = nn.Embedding(WORDS, 1024)
    optimizer = adam(cell, head, embedding)

    def step(_: int) -> None:
        state = torch.zeros(512, 1024, device=DEVICE)
        x = embedding(tokens(512, 1)[:, 0])
        loss: Tensor | float = 0.0
        for _ in range(draw.randint(6, 12)):
            state = cell(x, state)
            loss = loss + head(state).square().mean()
        assert isinstance(loss, Tensor)
        update(optimizer, loss)

    return step


PROGRAMS: dict[str, Callable[[Random], Step]] = {
    "2 to 6 micro-batches": lambda draw: accumulated(draw, 6),
    "2 or 3 micro-batches": lambda draw: accumulated(draw, 3),
    "4 micro-batches, fixed": lambda draw: accumulated(draw, 4, drawn=False),
    "step skipped in 10 %": lambda draw: skipped(draw, 0.1),
    "step skipped in 50 %": lambda draw: skipped(draw, 0.5),
    "clipped in 50 %": clipped,
    "GAN, critic 1 to 3 times": lambda draw: adversarial(draw, lambda d: d.randint(1, 3)),
    "GAN, critic 3 times": lambda draw: adversarial(draw, lambda d: 3),
    "GAN, penalty every 4": lambda draw: adversarial(draw, lambda d: 1, lazy=4),
    "3 lengths": lambda draw: lengths(draw, [256, 384, 512]),
    "16 lengths": lambda draw: lengths(draw, list(range(32, 513, 32))),
    "last batch of 7 smaller": lambda draw: batches(draw, 7),
    "evaluation every 3": lambda draw: evaluated(draw, 3, 1),
    "4 evaluations every 10": lambda draw: evaluated(draw, 10, 4),
    "2 models in turn": lambda draw: several(draw, 2, drawn=False),
    "3 models, drawn": lambda draw: several(draw, 3, drawn=True),
    "average every 2": lambda draw: averaged(draw, 2),
    "layers dropped, 10 %": lambda draw: layers(draw, share=0.1),
    "3 to 6 layers": lambda draw: layers(draw, shortened=True),
    "4 tasks, drawn": heads,
    "frozen and thawed": frozen,
    "policy gradient": policy,
    "teacher in 50 %": taught,
    "self-conditioned in 50 %": conditioned,
    "foreach, 2 lengths": lambda draw: fused(draw, foreach=True),
    "unrolled 6 to 12": unrolled,
    "fixed": lambda draw: skipped(draw, 0.0),
}
"""Each makes its models on the managed device, draws what it draws, and returns its step."""
