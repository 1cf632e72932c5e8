"""Data parallelism on four GPUs written out: scatter, replicate, parallel_apply, gather."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import gather, parallel_apply, replicate
from torch.nn.parallel.scatter_gather import scatter_kwargs

use_cuda = torch.cuda.is_available()
n_gpus = torch.cuda.device_count() if use_cuda else 4
device_ids = list(range(n_gpus))
device = torch.device("cuda", device_ids[0]) if use_cuda else torch.device("cpu")


class Tagger(nn.Module):
    def __init__(self, vocab=50, width=32, tags=6, depth=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.out = nn.Linear(width, tags)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, words, *, mask, options):
        x = self.embedding(words)
        for conv, norm in zip(self.convs, self.norms):
            x = norm(x + F.relu(conv(x.transpose(1, 2)).transpose(1, 2)))
        attended, _ = self.attention(x, x, x, key_padding_mask=mask, need_weights=options["weights"])
        x = x + self.scale * attended * options["gain"][:, None, None]
        return {"logits": self.out(x), "pooled": x.masked_fill(mask[..., None], 0).sum(1)}


def data_parallel(module, words, **kwargs):
    if not use_cuda:
        # One part after another, the first one last: its gradients then come first, as on the GPUs.
        parts = [words.chunk(n_gpus), kwargs["mask"].chunk(n_gpus), kwargs["options"]["gain"].chunk(n_gpus)]
        outputs = [
            module(w, mask=m, options={"gain": g, "weights": False}) for w, m, g in list(zip(*parts))[::-1]
        ]
        return {key: torch.cat([output[key] for output in outputs[::-1]]) for key in outputs[0]}
    inputs, kwargs = scatter_kwargs((words,), kwargs, device_ids)
    replicas = replicate(module, device_ids[: len(inputs)])
    assert [next(iter(r.buffers())).get_device() for r in replicas] == device_ids
    outputs = parallel_apply(replicas, inputs, kwargs, device_ids[: len(inputs)])
    return gather(outputs, device)


torch.manual_seed(0)
model = Tagger().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
for step in range(6):
    words = torch.randint(0, 50, (32, 12))
    tags = (words % 6).to(device)
    mask = torch.arange(12) >= torch.randint(6, 13, (32, 1))
    options = {"gain": torch.rand(32).to(device), "weights": False}
    output = data_parallel(model, words.to(device), mask=mask.to(device), options=options)
    loss = F.cross_entropy(output["logits"][~mask.to(device)], tags[~mask.to(device)])
    loss = loss + 1e-3 * output["pooled"].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item()!r}")

# Without gradients, and a batch that is too small for all GPUs.
model.eval()
with torch.no_grad():
    words, mask = torch.arange(36).view(3, 12).to(device), torch.zeros(3, 12, dtype=torch.bool, device=device)
    if use_cuda:
        inputs, kwargs = scatter_kwargs((words,), {"mask": mask}, device_ids)
        kwargs = [
            {**k, "options": {"gain": torch.ones(1).cuda(i), "weights": False}} for i, k in enumerate(kwargs)
        ]
        replicas = replicate(model, device_ids[: len(inputs)], detach=True)
        logits = [o["logits"] for o in parallel_apply(replicas, inputs, kwargs, device_ids[: len(inputs)])]
        logits = gather(logits, -1)
    else:
        options = {"gain": torch.ones(1), "weights": False}
        logits = torch.cat(
            [model(w, mask=m, options=options)["logits"] for w, m in zip(words.split(1), mask.split(1))]
        )
    print("tags", logits.argmax(-1).tolist(), logits.sum().item())
