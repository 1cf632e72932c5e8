"""A model over four GPUs layer by layer, as by accelerate's device_map="auto": hooks move the inputs."""

import torch
import torch.nn as nn
import torch.nn.functional as F

n = torch.cuda.device_count() if torch.cuda.is_available() else 4
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x, cache=None, bias=None):
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, -1)
        if cache:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        scores = q @ k.transpose(1, 2) / k.size(-1) ** 0.5
        x = x + self.proj(torch.softmax(scores if bias is None else scores + bias, -1) @ v)
        return x + self.mlp(self.ln_2(x)), (k.detach(), v.detach())


class Model(nn.Module):
    def __init__(self, vocab=32, width=32, depth=8):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocab, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.1)

    def forward(self, tokens, caches=None, bias=None):
        x, new = self.embed(tokens), []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, cache=caches[i] if caches else None, bias=bias)
            new.append(cache)
        return self.head(self.norm(x)), new


def send(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(send(v, device) for v in value)
    return {k: send(v, device) for k, v in value.items()} if isinstance(value, dict) else value


def dispatch(model, device_map):
    for name, device in device_map.items():
        module = model.get_submodule(name)
        module.to(device)
        module.register_forward_pre_hook(
            lambda _, args, kwargs, device=device: (send(args, device), send(kwargs, device)),
            with_kwargs=True,
        )
    # The result comes back to where the input was.
    model.register_forward_hook(lambda _, args, output: (output[0].to(args[0].device), output[1]))


model = Model()
sizes = {f"blocks.{i}": sum(p.numel() for p in b.parameters()) for i, b in enumerate(model.blocks)}
device_map, used, share = {"embed": 0, "norm": 0, "head": 0}, 0, sum(sizes.values()) / n
for name, size in sizes.items():
    device_map[name] = int(used // share)
    used += size
dispatch(model, device_map if torch.cuda.is_available() else dict.fromkeys(device_map, "cpu"))
if torch.cuda.is_available():
    assert {p.get_device() for p in model.parameters()} == set(range(n))
    assert model.head.weight is model.embed.weight and model.blocks[7].qkv.weight.device == torch.device(3)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
text = torch.cumsum(torch.randint(1, 3, (512,)), 0) % 32
causal = torch.full((12, 12), float("-inf")).triu(1)
for step in range(6):
    starts = torch.randint(len(text) - 13, (8,)).tolist()
    batch = torch.stack([text[i : i + 13] for i in starts])
    logits, _ = model(batch[:, :-1], bias=causal)
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item()!r}")
with torch.no_grad():
    tokens, caches, said = text[None, :1], None, []
    for _ in range(10):
        logits, caches = model(tokens, caches=caches)
        tokens = logits[:, -1:].argmax(-1)
        said.append(tokens.item())
    print("generated", said, logits.sum().item())
