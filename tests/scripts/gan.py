"""DCGAN's example, on made-up pictures."""

import argparse

import torch
import torch.nn as nn
import torch.utils.data

parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true", default=torch.cuda.is_available())
parser.add_argument("--ngpu", type=int, default=1)
parser.add_argument("--niter", type=int, default=2)
opt = parser.parse_args()
torch.manual_seed(3)
nz, ngf, ndf = 16, 16, 16
device = torch.device("cuda:0" if opt.cuda else "cpu")
dataset = torch.utils.data.TensorDataset(torch.rand(64, 1, 16, 16).round() * 2 - 1)
loader = torch.utils.data.DataLoader(
    dataset, batch_size=16, generator=torch.Generator().manual_seed(0), shuffle=True
)


def weights_init(m):
    if m.__class__.__name__.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif m.__class__.__name__.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


class Parallel(nn.Module):
    def __init__(self, ngpu, *layers):
        super().__init__()
        self.ngpu, self.main = ngpu, nn.Sequential(*layers)

    def forward(self, input):
        if input.is_cuda and self.ngpu > 1:
            return nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        return self.main(input)


netG = Parallel(
    opt.ngpu,
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = Parallel(
    opt.ngpu,
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
)
for net in (netG, netD):
    net.apply(weights_init)
    net.to(device)
criterion = nn.BCELoss()
torch.manual_seed(4)
fixed_noise = torch.randn(8, nz, 1, 1, device=device)
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=True)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=True)
for epoch in range(opt.niter):
    for i, (real,) in enumerate(loader):
        netD.zero_grad()
        real = real.to(device)
        label = torch.full((real.size(0),), 1.0, dtype=real.dtype, device=device)
        errD_real = criterion(netD(real).view(-1), label)
        errD_real.backward()
        fake = netG(torch.randn(real.size(0), nz, 1, 1, device=device))
        label.fill_(0)
        errD_fake = criterion(netD(fake.detach()).view(-1), label)
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        label.fill_(1)
        errG = criterion(netD(fake).view(-1), label)
        errG.backward()
        optimizerG.step()
        print(f"[{epoch}][{i}] Loss_D {(errD_real + errD_fake).item()!r} Loss_G {errG.item()!r}")
with torch.no_grad():
    print("fixed", netG(fixed_noise).sum().item().hex())
