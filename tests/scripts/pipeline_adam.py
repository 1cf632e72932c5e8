"""A language model in two halves, on cuda:0 and cuda:1, trained by Adam with clipping."""

import torch
import torch.nn as nn
import torch.nn.functional as F

cuda = torch.cuda.device_count() > 1
dev0 = torch.device("cuda:0" if cuda else "cpu")
dev1 = torch.device("cuda:1" if cuda else "cpu")
vocab, width, length, batch = 40, 32, 16, 8
torch.manual_seed(0)


def layers(depth):
    layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocab, width).to(dev0)
        self.position = nn.Parameter(0.02 * torch.randn(length, width).to(dev0))
        self.first = layers(3).to(dev0)
        self.second = layers(3).to(dev1)
        self.head = nn.Linear(width, vocab).to(dev1)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1))
        x = self.embed(tokens.to(dev0, non_blocking=True)) + self.position
        x = self.first(x, mask=mask.to(dev0), is_causal=True)
        x = self.second(x.to(dev1, non_blocking=True), mask=mask.to(dev1), is_causal=True)
        return self.head(x)


model = Pipeline()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.95), foreach=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=8)
text = torch.cumsum(torch.randint(1, 4, (1024,)), 0) % vocab
for step in range(8):
    starts = torch.randint(len(text) - length - 1, (batch,)).tolist()
    x = torch.stack([text[i : i + length] for i in starts])
    y = torch.stack([text[i + 1 : i + 1 + length] for i in starts]).to(dev1)
    logits = model(x)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)
    optimizer.step()
    scheduler.step()
    print(f"step {step} loss {loss.item()!r} norm {norm.item()!r}")
assert {p.device for p in model.parameters()} == {dev0, dev1}
model.eval()
with torch.inference_mode():
    guess = model(text[None, :length])[0].argmax(-1).to("cpu")
    print("predicted", guess.tolist())
