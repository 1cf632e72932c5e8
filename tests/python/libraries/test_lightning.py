"""Lightning's Trainer and Fabric use managed after ``import innkeeper``, and keep a script's own choice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from managed_scripts import Scripts

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
)

MODEL = """
import hashlib, sys, warnings
import torch
import lightning.pytorch as pl
warnings.filterwarnings("ignore")

class Model(pl.LightningModule):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(32, 1)
        )
        self.losses, self.checks, self.seen = [], [], set()
    def forward(self, x):
        self.seen.add(x.device.type)
        assert x.device == self.device and x.device == self.layers[0].weight.device
        return self.layers(x)
    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss
    def validation_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self(batch[0]), batch[1])
        self.checks.append(loss.item())
        torch.rand_like(loss)
        self.log("check", loss)
    def predict_step(self, batch, index):
        return self(batch[0])
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)

def batches():
    made = torch.Generator().manual_seed(1)
    x = torch.randn(64, 8, generator=made)
    pairs = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    return torch.utils.data.DataLoader(pairs, batch_size=16)

def trainer(epochs, **options):
    shown = ("progress_bar", "model_summary", "checkpointing")
    quiet = {f"enable_{name}": False for name in shown} | {"logger": False}
    return pl.Trainer(max_epochs=epochs, gradient_clip_val=0.5, **(quiet | options))

def model(dropout=0.0):
    torch.manual_seed(0)
    return Model(dropout)
"""

# The script's output is the same on any device that has the CPU's arithmetic.
TRAINED = """
first, second = model(), model()
training = trainer(2)
training.fit(first, batches(), batches())
training.save_checkpoint("saved.ckpt")
trainer(4).fit(second, batches(), batches(), ckpt_path="saved.ckpt")
predicted = trainer(0).predict(second, batches())
print(len(first.losses), first.losses, first.checks, second.losses, second.checks)
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in second.parameters())).hexdigest())
print(hashlib.sha256(torch.cat(predicted).cpu().numpy().tobytes()).hexdigest())
print(*first.seen | second.seen, file=sys.stderr)
"""

CHOICES = """
def uses(**options):
    trained = model()
    training = trainer(1, **options)
    training.fit(trained, batches(), batches())
    assert trained.losses[-1] < trained.losses[0], (options, trained.losses)
    training.save_checkpoint("saved.ckpt")
    resumed = model()
    trainer(2, **options).fit(resumed, batches(), ckpt_path="saved.ckpt")
    assert resumed.losses[-1] < trained.losses[0], (options, resumed.losses)
    scaler = getattr(training.precision_plugin, "scaler", None)
    return *trained.seen, None if scaler is None else torch.device(scaler._device).type

own = pl.accelerators.AcceleratorRegistry.get("managed")
print(uses(accelerator="managed", devices=1))
print(uses(accelerator=own, precision="16-mixed"))
print(uses(strategy="single_managed", precision="bf16-true"))
print(uses(precision="bf16-mixed"))
print(uses(accelerator="cpu"))
print(uses(strategy=pl.strategies.SingleDeviceStrategy("cpu")))
for refused in (dict(accelerator="gpu"), dict(devices=[1])):
    try:
        trainer(1, **refused)
    except Exception as error:
        print(error)

# Dropout and validation draw from the device's stream: a check before training leaves it as it was.
checked, unchecked = model(0.5), model(0.5)
torch.manual_seed(2)
trainer(1, limit_val_batches=1).fit(checked, batches(), batches())
torch.manual_seed(2)
trainer(1, limit_val_batches=1, num_sanity_val_steps=0).fit(unchecked, batches(), batches())
print(checked.losses == unchecked.losses, len(checked.checks) - len(unchecked.checks))
"""

FABRIC = """
from lightning.fabric import Fabric
def uses(**options):
    fabric = Fabric(**options)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    layers, optimizer = fabric.setup(layers, torch.optim.Adam(layers.parameters(), lr=0.01))
    losses = []
    for x, y in list(fabric.setup_dataloaders(batches())) * 2:
        assert x.device == fabric.device == next(layers.parameters()).device
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(layers(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(layers, optimizer, max_norm=0.5, error_if_nonfinite=False)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses
    fabric.save("saved.fabric", {"layers": layers, "optimizer": optimizer})
    fabric.load("saved.fabric", {"layers": layers, "optimizer": optimizer})
    return fabric.device.type, losses
on_cpu = uses(accelerator="cpu")
print(on_cpu[0], uses(accelerator="auto") == ("managed", on_cpu[1]))
for precision in ("16-mixed", "bf16-mixed", "bf16-true"):
    print(uses(accelerator="managed", precision=precision)[0])
trained, training = model(), trainer(1, precision="16-mixed")
training.fit(trained, batches(), batches())
print(*trained.seen, torch.device(training.precision_plugin.scaler._device).type)
"""


def test_trainer_gives_the_bits_of_the_cpu(scripts: Scripts, tmp_path: Path):
    said = []
    for name, first, device in [("cpu", "", "cpu"), ("managed", "import innkeeper\n", "managed")]:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "script.py").write_text(first + MODEL + TRAINED)
        done = scripts.python("script.py", directory=directory, INNKEEPER_NODES="sim:2x64MiB,host:1GiB")
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == device
        said.append(done.stdout)
    assert said[0] == said[1] and said[0].startswith("8 [")


def test_what_a_script_chooses(scripts: Scripts):
    said, _ = scripts.plain(MODEL + CHOICES)
    assert said.splitlines() == [
        "('managed', None)",
        "('managed', 'managed')",
        "('managed', None)",
        "('managed', None)",
        "('cpu', None)",
        "('cpu', None)",
        "No supported gpu backend found!",
        "devices=[1]: there is one managed device, index 0, for all GPUs; a number is one of processes",
        "True 1",
    ]


def test_fabric_and_the_older_packages(scripts: Scripts):
    code = MODEL + FABRIC
    older = code.replace("lightning.pytorch", "pytorch_lightning")
    older = older.replace("lightning.fabric", "lightning_fabric")
    said, _ = scripts.plain(code + older)
    assert said.splitlines() == ["cpu True", *["managed"] * 3, "managed managed"] * 2
