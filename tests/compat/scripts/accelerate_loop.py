"""accelerate's training loop: prepare, accumulate, clip, gather."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=not torch.accelerator.is_available(), gradient_accumulation_steps=2)
x = torch.randn(256, 32)
data = DataLoader(TensorDataset(x, x.pow(2).sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = torch.nn.Sequential(
    torch.nn.Linear(32, 256),
    torch.nn.GELU(),
    torch.nn.Linear(256, 256),
    torch.nn.GELU(),
    torch.nn.Linear(256, 1),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)

losses = []
for epoch in range(2):
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())

weights = accelerator.unwrap_model(model).state_dict()
results = {"losses": losses, "weights": weights, "processes": accelerator.num_processes}
