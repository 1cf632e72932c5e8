"""Lightning's Fabric: setup, backward, and a resumed checkpoint."""

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

fabric = Fabric()
fabric.launch()
fabric.seed_everything(0, verbose=False)
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True), 3, enable_nested_tensor=False
)
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
x = torch.randn(64, 16, 32)
data = fabric.setup_dataloaders(DataLoader(TensorDataset(x, x.roll(1, 1)), batch_size=8, shuffle=True))

losses = []
for epoch in range(2):
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    fabric.save("fabric.ckpt", {"model": model, "optimizer": optimizer})
    fabric.load("fabric.ckpt", {"model": model, "optimizer": optimizer})

results = {"losses": losses, "weights": model.state_dict()}
