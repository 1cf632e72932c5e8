"""A denoising diffusion model of small pictures, with an average of its weights and a checkpoint."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda:0" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
T = 50
betas = torch.linspace(1e-4, 0.02, T, device=device)
alphas_bar = torch.cumprod(1.0 - betas, dim=0)


def embed(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Res(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.t = nn.Linear(tdim, cout)
        self.n2, self.c2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1)

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv2d(1, 16, 3, padding=1)
        self.down, self.mid, self.up = Res(16, 32, 32), Res(32, 32, 32), Res(64, 16, 32)
        self.out = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x, t):
        t = embed(t, 32)
        h = self.down(self.inp(x), t)
        m = F.interpolate(self.mid(F.avg_pool2d(h, 2), t), scale_factor=2)
        return self.out(self.up(torch.cat([h, m], dim=1), t))


model = UNet().to(device)
ema = copy.deepcopy(model).eval().requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, foreach=True)
pictures = torch.zeros(64, 1, 8, 8)
for i in range(64):
    pictures[i, 0, i % 8, :] = 1
pictures = pictures * 2 - 1
torch.manual_seed(1)
if device != "cpu":
    torch.cuda.manual_seed(1)
for step in range(12):
    x0 = pictures[(step % 4) * 16 : (step % 4) * 16 + 16].to(device)
    t = torch.randint(0, T, (16,), device=device)
    noise = torch.randn_like(x0)
    a = alphas_bar[t][:, None, None, None]
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    opt.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 0.1)
    print(f"step {step} loss {loss.item()!r}")
torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": 12}, "diffusion.pt")
saved = torch.load("diffusion.pt", map_location=device)
model.load_state_dict(saved["model"])
opt.load_state_dict(saved["opt"])
with torch.no_grad():
    x = torch.randn(4, 1, 8, 8, device=device)
    for i in reversed(range(0, T, 10)):
        eps = ema(x, torch.full((4,), i, device=device, dtype=torch.long))
        x = (x - betas[i] / (1 - alphas_bar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
print("sample", x.double().sum().item().hex())
