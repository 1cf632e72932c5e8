"""Everyday pieces of PyTorch programs without a single ``.to()``: only the model is where ``place`` puts it.

Each function takes ``place``, which puts a module on the device and returns it, and returns the values that a
program would look at. Loaders, targets, masks, tables and noise are made where PyTorch makes them: on the
CPU.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, TensorDataset, default_collate

import torch
from torch import Tensor, nn

Place = Callable[[Any], Any]
SNIPPETS: dict[str, Callable[[Place], Any]] = {}


def snippet(function: Callable[[Place], Any]) -> Callable[[Place], Any]:
    """Adds the function to ``SNIPPETS``, by its name."""
    SNIPPETS[function.__name__] = function
    return function


def trained(model: nn.Module, loss: Tensor) -> list[Tensor | None]:
    """The loss, and the gradients after its backward."""
    loss.backward()
    return [loss, *(parameter.grad for parameter in model.parameters())]


# Losses


@snippet
def mean_squared_error(place: Place) -> Any:
    model = place(nn.Linear(4, 2))
    return trained(model, F.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 2)))


@snippet
def cross_entropy_with_class_weights(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 0.5, 0.3]), label_smoothing=0.1)
    return trained(model, criterion(model(torch.randn(8, 4)), torch.randint(3, (8,))))


@snippet
def binary_loss_with_positive_weight(place: Place) -> Any:
    model = place(nn.Linear(4, 1))
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0]))
    return trained(model, criterion(model(torch.randn(8, 4)).squeeze(1), torch.randint(2, (8,)).float()))


@snippet
def negative_log_likelihood_with_ignored_targets(place: Place) -> Any:
    model = place(nn.Sequential(nn.Linear(4, 5), nn.LogSoftmax(-1)))
    target = torch.tensor([0, 1, -100, 4])
    return trained(model, F.nll_loss(model(torch.randn(4, 4)), target))


@snippet
def distillation_from_a_teacher_on_the_cpu(place: Place) -> Any:
    teacher, student = nn.Linear(4, 3), place(nn.Linear(4, 3))
    x = torch.randn(6, 4)
    with torch.no_grad():
        wanted = teacher(x).softmax(-1)
    return trained(student, F.kl_div(student(x).log_softmax(-1), wanted, reduction="batchmean"))


@snippet
def triplets_and_cosines(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    anchor, near, far = torch.randn(3, 5, 4)
    labels = torch.tensor([1.0, -1, 1, -1, 1])
    loss = F.triplet_margin_loss(model(anchor), near[:, :3], far[:, :3])
    return trained(model, loss + F.cosine_embedding_loss(model(near), far[:, 1:], labels))


@snippet
def contrastive_pairs(place: Place) -> Any:
    model = place(nn.Linear(6, 4))
    first, second = (F.normalize(model(x), dim=-1) for x in torch.randn(2, 8, 6))
    return trained(model, F.cross_entropy(first @ second.T / 0.1, torch.arange(8)))


@snippet
def connectionist_temporal_classification(place: Place) -> Any:
    model = place(nn.Linear(4, 5))
    lengths, targets = torch.tensor([6, 5]), torch.tensor([[1, 2, 3], [4, 2, 0]])
    return trained(
        model, F.ctc_loss(model(torch.randn(6, 2, 4)).log_softmax(-1), targets, lengths, torch.tensor([3, 2]))
    )


@snippet
def gaussian_likelihood_with_noise_levels(place: Place) -> Any:
    model = place(nn.Linear(4, 1))
    return trained(
        model, F.gaussian_nll_loss(model(torch.randn(5, 4)), torch.randn(5, 1), torch.rand(5, 1) + 0.1)
    )


@snippet
def losses_weighted_sample_by_sample(place: Place) -> Any:
    model = place(nn.Linear(4, 1))
    each = F.l1_loss(model(torch.randn(6, 4)), torch.randn(6, 1), reduction="none")
    return trained(model, (each * torch.linspace(0, 1, 6).unsqueeze(1)).mean())


@snippet
def penalties_added_to_a_scalar_on_the_cpu(place: Place) -> Any:
    model = place(nn.Linear(4, 2))
    total = torch.tensor(0.0)
    for parameter in model.parameters():
        total = total + parameter.pow(2).sum()
    return trained(model, total)


# Metrics


@snippet
def accuracy_and_top_k(place: Place) -> Any:
    model = place(nn.Linear(4, 6))
    scores, labels = model(torch.randn(10, 4)), torch.randint(6, (10,))
    top = scores.topk(3, -1).indices
    return (scores.argmax(-1) == labels).float().mean(), (top == labels[:, None]).any(-1).sum().item()


@snippet
def a_confusion_matrix(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    found, labels = model(torch.randn(20, 4)).argmax(-1), torch.randint(3, (20,))
    return torch.bincount(labels * 3 + found, minlength=9).view(3, 3)


@snippet
def sums_kept_in_a_tensor_on_the_cpu(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    sums = torch.zeros(3)
    for x in DataLoader(torch.randn(9, 4), batch_size=3):
        sums += model(x).detach().sum(0)
    return sums, sums.device.type


@snippet
def results_written_into_a_table(place: Place) -> Any:
    model = place(nn.Linear(4, 2))
    table = torch.empty(6, 2)
    for at in range(0, 6, 2):
        table[at : at + 2] = model(torch.ones(2, 4) * at).detach()
    return table, table.numpy().shape


@snippet
def distances_to_a_bank_of_neighbours(place: Place) -> Any:
    model, bank, labels = place(nn.Linear(4, 3)), torch.randn(12, 3), torch.randint(4, (12,))
    near = torch.cdist(model(torch.randn(5, 4)), bank).topk(3, largest=False).indices
    return labels[near], torch.mode(labels[near], -1).values


# Masks and positions


@snippet
def a_causal_mask_added_to_scores(place: Place) -> Any:
    model = place(nn.Linear(4, 4))
    x = model(torch.randn(2, 5, 4))
    scores = x @ x.transpose(1, 2) + torch.full((5, 5), float("-inf")).triu(1)
    return trained(model, (scores.softmax(-1) @ x).sum())


@snippet
def a_padding_mask_from_lengths(place: Place) -> Any:
    model = place(nn.Linear(4, 1))
    lengths = torch.tensor([3, 5, 1])
    mask = torch.arange(5)[None, :] < lengths[:, None]
    scores = model(torch.randn(3, 5, 4)).squeeze(-1).masked_fill(~mask, -1e9)
    return trained(model, (scores.softmax(-1) * mask).sum(-1).mean() + scores[mask].mean())


@snippet
def attention_with_a_mask(place: Place) -> Any:
    layer = place(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))
    padding = torch.tensor([[False, False, True], [False, True, True]])
    causal = nn.Transformer.generate_square_subsequent_mask(3).isinf()
    return trained(layer, layer(torch.randn(2, 3, 8), src_mask=causal, src_key_padding_mask=padding).sum())


@snippet
def a_mask_that_is_an_attribute(place: Place) -> Any:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.mask = torch.ones(4, 4).tril()

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.linear.weight * self.mask, self.linear.bias)

    model = place(Masked())
    return trained(model, model(torch.randn(3, 4)).sum())


@snippet
def positions_made_in_forward(place: Place) -> Any:
    tokens, places = place(nn.Embedding(10, 4)), place(nn.Embedding(6, 4))
    ids = torch.randint(10, (2, 6))
    loss = (tokens(ids) + places(torch.arange(ids.shape[1]))).pow(2).sum()
    return trained(nn.ModuleList([tokens, places]), loss)


@snippet
def rotary_positions(place: Place) -> Any:
    model = place(nn.Linear(8, 8))
    angles = torch.outer(torch.arange(5.0), 1.0 / 10.0 ** (torch.arange(0, 8, 2) / 8))
    even, odd = model(torch.randn(5, 8)).unflatten(-1, (4, 2)).unbind(-1)
    turned = [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()]
    return trained(model, torch.stack(turned, -1).flatten(1).square().sum())


@snippet
def where_and_clamp_by_limits(place: Place) -> Any:
    model = place(nn.Linear(4, 4))
    y = model(torch.randn(3, 4))
    low, high = torch.tensor([-0.5, -0.1, 0.0, 0.1]), torch.tensor([0.5, 0.1, 1.0, 0.2])
    return trained(model, torch.where(torch.rand(3, 4) > 0.5, y, high).clamp(low, high).sum())


# Recurrent and sequence models


@snippet
def a_hidden_state_of_zeros(place: Place) -> Any:
    model = place(nn.GRU(4, 6, 2))
    y, h = model(torch.randn(5, 3, 4), torch.zeros(2, 3, 6))
    return trained(model, y.sum() + h.sum())


@snippet
def a_cell_called_step_by_step(place: Place) -> Any:
    cell = place(nn.LSTMCell(4, 6))
    h, c = torch.zeros(3, 6), torch.zeros(3, 6)
    for x in torch.randn(4, 3, 4):
        h, c = cell(x, (h, c))
    return trained(cell, h.sum())


@snippet
def sequences_padded_and_packed(place: Place) -> Any:
    embedding, model = place(nn.Embedding(10, 4)), place(nn.LSTM(4, 5, batch_first=True))
    rows = [torch.randint(10, (n,)) for n in (5, 3, 2)]
    lengths = torch.tensor([len(row) for row in rows])
    packed = pack_padded_sequence(embedding(pad_sequence(rows, batch_first=True)), lengths, batch_first=True)
    y, _ = pad_packed_sequence(model(packed)[0], batch_first=True)
    return trained(nn.ModuleList([embedding, model]), y.sum())


@snippet
def greedy_decoding(place: Place) -> Any:
    model = place(nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12)))
    ids = torch.tensor([[1], [2]])
    for _ in range(5):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


@snippet
def beam_search(place: Place) -> Any:
    model = place(nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9)))
    beams, scores = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1)
    for _ in range(4):
        total = (scores[:, None] + model(beams)[:, -1].log_softmax(-1)).flatten()
        scores, best = total.topk(3)
        beams = torch.cat([beams[best // 9], (best % 9)[:, None]], 1)
    return beams, scores


@snippet
def sampling_with_noise_of_the_cpu(place: Place) -> Any:
    model = place(nn.Linear(4, 7))
    logits = model(torch.randn(3, 4))
    gumbel = -torch.empty(3, 7).exponential_().log()
    drawn = torch.searchsorted(logits.softmax(-1).cumsum(-1), torch.rand(3, 1))
    return (logits + gumbel).argmax(-1), drawn


@snippet
def top_p_filtering(place: Place) -> Any:
    model = place(nn.Linear(4, 7))
    ordered, order = model(torch.randn(3, 4)).sort(descending=True)
    drop = ordered.softmax(-1).cumsum(-1) > torch.tensor([[0.5], [0.8], [0.9]])
    return ordered.masked_fill(drop, float("-inf")).gather(1, order.argsort(1)).softmax(-1)


# Training loops


@snippet
def a_loader_an_optimizer_and_a_scheduler(place: Place) -> Any:
    model = place(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)
    losses = []
    for x, y in DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses, list(model.parameters())


@snippet
def batches_of_dicts(place: Place) -> Any:
    model = place(nn.Linear(4, 1))
    rows = [{"x": torch.randn(4), "y": float(n), "weight": torch.rand(())} for n in range(5)]
    batch = default_collate(rows)
    error = (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
    return trained(model, (error * batch["weight"]).mean())


@snippet
def an_average_of_weights_on_the_cpu(place: Place) -> Any:
    model = nn.Linear(4, 4)
    average = copy.deepcopy(model)
    place(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                kept.mul_(0.9).add_(now, alpha=0.1)
    return list(average.parameters()), average.weight.device.type


@snippet
def a_checkpoint_read_on_the_cpu(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": 3}, file)
    file.seek(0)
    saved = torch.load(file, map_location="cpu")
    other = place(nn.Linear(4, 3))
    other.load_state_dict(saved["model"])
    return other(torch.ones(2, 4)), (saved["model"]["weight"] - model.weight).abs().max()


@snippet
def mixing_samples(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    x, y = torch.randn(6, 4), F.one_hot(torch.randint(3, (6,)), 3).float()
    order, part = torch.randperm(6), torch.rand(6, 1)
    y = part * y + (1 - part) * y[order]
    return trained(model, -(y * model(part * x + (1 - part) * x[order]).log_softmax(-1)).sum(-1).mean())


@snippet
def images_normalized_by_constants(place: Place) -> Any:
    model = place(nn.Conv2d(3, 4, 3))
    mean, std = torch.tensor([0.48, 0.45, 0.40]), torch.tensor([0.22, 0.22, 0.22])
    images = (torch.rand(2, 3, 8, 8) - mean[:, None, None]) / std[:, None, None]
    return trained(model, (model(images).mean((2, 3)) - torch.rand(2, 4)).square().sum())


@snippet
def a_gan_s_labels(place: Place) -> Any:
    vendor, judge = place(nn.Linear(2, 4)), place(nn.Linear(4, 1))
    fake = vendor(torch.randn(5, 2))
    loss = F.binary_cross_entropy_with_logits(judge(torch.randn(5, 4)), torch.ones(5, 1))
    loss = loss + F.binary_cross_entropy_with_logits(judge(fake), torch.zeros(5, 1))
    return trained(nn.ModuleList([vendor, judge]), loss)


@snippet
def a_gradient_penalty(place: Place) -> Any:
    judge = place(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    mixed = torch.lerp(torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
    return trained(judge, (slope.norm(dim=1) - 1).square().mean())


@snippet
def an_encoder_with_noise(place: Place) -> Any:
    model = place(nn.Linear(4, 6))
    mean, spread = model(torch.randn(3, 4)).chunk(2, -1)
    z = mean + torch.randn(3, 3) * (spread / 2).exp()
    return trained(model, z.sum() - 0.5 * (1 + spread - mean.square() - spread.exp()).sum())


@snippet
def a_schedule_of_noise_by_step(place: Place) -> Any:
    model = place(nn.Linear(5, 4))
    kept = (1 - torch.linspace(1e-4, 0.02, 50)).cumprod(0)
    x, noise, t = torch.randn(6, 4), torch.randn(6, 4), torch.randint(50, (6,))
    noisy = kept[t].sqrt()[:, None] * x + (1 - kept[t]).sqrt()[:, None] * noise
    return trained(model, F.mse_loss(model(torch.cat([noisy, t[:, None] / 50], 1)), noise))


@snippet
def values_of_actions_with_a_target_network(place: Place) -> Any:
    model = place(nn.Linear(4, 3))
    target = copy.deepcopy(model)
    states, after = torch.randn(2, 8, 4)
    actions, rewards, done = torch.randint(3, (8, 1)), torch.randn(8), torch.randint(2, (8,)).float()
    with torch.no_grad():
        wanted = rewards + 0.9 * (1 - done) * target(after).max(1).values
    return trained(model, F.smooth_l1_loss(model(states).gather(1, actions).squeeze(1), wanted))


@snippet
def a_policy_s_returns(place: Place) -> Any:
    policy = place(nn.Linear(4, 2))
    rewards = torch.tensor([0.0, 0.0, 1.0, 0.5])
    returns = torch.stack([(rewards[t:] * 0.9 ** torch.arange(4 - t)).sum() for t in range(4)])
    choices = torch.distributions.Categorical(logits=policy(torch.randn(4, 4)))
    loss = -(choices.log_prob(torch.tensor([0, 1, 1, 0])) * returns).mean() - 0.01 * choices.entropy().mean()
    return trained(policy, loss)


@snippet
def messages_on_a_graph(place: Place) -> Any:
    model = place(nn.Linear(4, 4))
    source, target = torch.randint(6, (2, 10))
    h = model(torch.randn(6, 4))
    received = torch.zeros(6, 4).index_add(0, target, h[source])
    counts = torch.bincount(target, minlength=6).clamp(min=1)
    return trained(model, (received / counts[:, None]).relu().sum())


@snippet
def sums_by_segment(place: Place) -> Any:
    model = place(nn.Linear(4, 2))
    index = torch.tensor([0, 0, 1, 2, 2, 2])[:, None].expand(6, 2)
    summed = torch.zeros(3, 2).scatter_add(0, index, model(torch.randn(6, 4)))
    return trained(model, summed.square().sum())


@snippet
def features_of_two_branches_joined(place: Place) -> Any:
    first, second = place(nn.Linear(4, 3)), nn.Linear(4, 3)  # The second stays on the CPU.
    x = torch.randn(5, 4)
    joined = torch.cat([first(x), second(x), torch.ones(5, 1)], 1)
    loss = torch.einsum("bi,ij->bj", joined, torch.randn(7, 2)).square().mean()
    return [*trained(nn.ModuleList([first, second]), loss), second.weight.grad.device.type]
