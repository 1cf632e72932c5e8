"""Lightning's Trainer on a small convolutional network, with validation."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4),
        )  # fmt: skip
        self.layers(torch.zeros(2, 3, 16, 16))
        self.losses = []

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        self.log("check", torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


L.seed_everything(0, verbose=False)
model = Classifier()
data = TensorDataset(torch.randn(96, 3, 16, 16), torch.randint(0, 4, (96,)))
quiet = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
}
trainer = L.Trainer(max_epochs=3, gradient_clip_val=1.0, **quiet)
trainer.fit(model, DataLoader(data, batch_size=16, shuffle=True), DataLoader(data, batch_size=32))

results = {"losses": model.losses, "check": trainer.callback_metrics["check"], "weights": model.state_dict()}
