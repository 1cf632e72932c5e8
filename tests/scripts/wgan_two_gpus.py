"""A WGAN with gradient penalty: the generator on cuda:0, the discriminator on cuda:1."""

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import spectral_norm

cuda = torch.cuda.device_count() > 1
dev_g = torch.device("cuda:0" if cuda else "cpu")
dev_d = torch.device("cuda:1" if cuda else "cpu")
nz, batch = 8, 16
torch.manual_seed(0)

G = nn.Sequential(
    nn.Linear(nz, 32 * 9),
    nn.Unflatten(1, (32, 3, 3)),
    nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(True),
    nn.ConvTranspose2d(16, 16, 3, 1, 1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(True),
    nn.ConvTranspose2d(16, 1, 4, 2, 1),
    nn.Tanh(),
).to(dev_g)
D = nn.Sequential(
    nn.Conv2d(1, 16, 3, 1, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(16, 16, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(16, 32, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    spectral_norm(nn.Linear(32 * 9, 16)),
    nn.LeakyReLU(0.2),
    nn.Linear(16, 1),
).to(dev_d)
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.0, 0.9), foreach=True)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.0, 0.9), foreach=True)
noise = torch.Generator(device=dev_g).manual_seed(1)
mixing = torch.Generator(device=dev_d).manual_seed(2)


def gradient_penalty(real, fake):
    alpha = torch.rand(batch, 1, 1, 1, device=dev_d, generator=mixing)
    mixed = torch.lerp(real, fake, alpha).requires_grad_()
    (gradient,) = torch.autograd.grad(D(mixed).sum(), mixed, create_graph=True)
    return (gradient.flatten(1).norm(dim=1) - 1).pow(2).mean()


for iteration in range(4):
    for _ in range(2):
        real = torch.tanh(torch.randn(batch, 1, 12, 12).cumsum(2)).to(dev_d)
        with torch.no_grad():
            fake = G(torch.randn(batch, nz, device=dev_g, generator=noise)).to(dev_d)
        opt_d.zero_grad()
        loss_d = D(fake).mean() - D(real).mean() + 10 * gradient_penalty(real, fake)
        loss_d.backward()
        opt_d.step()
    opt_g.zero_grad()
    for p in D.parameters():
        p.requires_grad_(False)
    fake = G(torch.randn(batch, nz, device=dev_g, generator=noise))
    loss_g = -D(fake.to(dev_d)).mean()
    loss_g.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)
    print(f"[{iteration}] Loss_D {loss_d.item()!r} Loss_G {loss_g.item()!r}")
G.eval()
with torch.no_grad():
    samples = G(torch.linspace(-1, 1, 4 * nz).view(4, nz).to(dev_g))
    scores = D(samples.to(dev_d)).to(dev_g).squeeze(1)
print("scores", scores.tolist(), (samples.mean(dim=(1, 2, 3)) + scores).tolist())
