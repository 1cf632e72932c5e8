"""bitsandbytes: linear layers of 8 and of 4 bits, and its 8-bit optimizer."""

import bitsandbytes as bnb
import torch

device = torch.accelerator.current_accelerator() or torch.device("cpu")
x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)


def forward(make, training=True):
    torch.manual_seed(0)
    whole = torch.nn.Linear(64, 64, dtype=torch.bfloat16)
    layer = make()
    layer.load_state_dict(whole.state_dict())
    layer = layer.to(device).train(training)
    with torch.no_grad():
        return layer(x.to(device))


def optimized():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-2, min_8bit_size=1)
    for _ in range(3):
        model(x.float().to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()


def int8():
    return bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False)


def int4():
    return bnb.nn.Linear4bit(64, 64, compute_dtype=torch.bfloat16)


results = {
    "Linear8bitLt in training": forward(int8),
    "Linear8bitLt after eval()": forward(int8, training=False),
    "Linear4bit": forward(int4),
    "AdamW8bit": optimized(),
}
