"""The models of models.py for a GPU: large enough that libraries' workspaces are small in comparison.

All are deterministic on CUDA, and without dropout unless their name says so: managed tensors draw from their
own random stream, so with dropout only runs on managed can have the same bits.
"""

from __future__ import annotations

import models
from gpu_device import FAST

GPT = {"width": 256, "layers": 6} if FAST else {"width": 32, "layers": 2}
RESNET = {"channels": 32, "batch": 32, "size": 32} if FAST else {"channels": 8, "batch": 4, "size": 8}


def gpt(device: str, steps: int, dropout: float = 0.0, **implementation: bool) -> models.Result:
    return models.train_gpt(device, steps, dropout=dropout, **GPT, **implementation)


TRAININGS = {
    "gpt": gpt,
    "gpt-foreach": lambda device, steps: gpt(device, steps, foreach=True),
    "gpt-fused": lambda device, steps: gpt(device, steps, fused=True),
    "gpt-dropout": lambda device, steps: gpt(device, steps, dropout=0.1, foreach=True),
    "resnet": lambda device, steps: models.train_resnet(device, steps, pool=False, **RESNET),
    "lstm": lambda device, steps: models.train_lstm(device, steps, dropout=0.0),
    "mlp-autocast": models.train_mlp_autocast,
}
# Drawn from the managed stream: not the numbers of plain CUDA.
DRAWING = {"gpt-dropout"}
# Without cuDNN on both sides: its LSTM is one operator, and managed tensors take PyTorch's own, cell by cell.
# The fake GPU has none.
WITHOUT_CUDNN = {"lstm"} if FAST else set(TRAININGS)
