"""INNKEEPER_STRESS=hash: no kernel writes an operand that its schema calls read-only, but for those we know.

PyTorch's database of operators is tried so in test_opinfo.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from processes import RunProgram
from repository import ROOT

OWN = ROOT / "tests" / "pytorch_own"
NODES = "sim:1x64MiB,host:1GiB"
RNNS = """
import itertools
import torch, innkeeper
from torch import nn

def train(made, x, device):
    torch.manual_seed(1)
    made = made().to(device)
    x = x.to(device) if isinstance(x, torch.Tensor) else x.to(device)
    output = made(x)[0]
    total = (output.data if isinstance(output, nn.utils.rnn.PackedSequence) else output).square().sum()
    total.backward()
    return [total.item(), *(p.grad.cpu() for p in made.parameters())]

torch.manual_seed(0)
padded = torch.randn(5, 4, 6)
packed = nn.utils.rnn.pack_padded_sequence(padded, [5, 4, 2, 1])
kinds = {"RNN": [{}, {"nonlinearity": "relu"}], "LSTM": [{}, {"proj_size": 3}], "GRU": [{}]}
tried = 0
for kind, more in kinds.items():
    for options, both, layers, x in itertools.product(more, (False, True), (1, 2), (padded, packed)):
        def made():
            return getattr(nn, kind)(6, 10, num_layers=layers, bidirectional=both, **options)
        for mine, plain in zip(train(made, x, "managed"), train(made, x, "cpu"), strict=True):
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(plain)), (kind, options, both, layers)
        tried += 1
for cell in (nn.RNNCell, nn.LSTMCell, nn.GRUCell):
    made = cell(6, 10).to("managed")
    state = made(torch.randn(4, 6, device="managed"))
    sum(x.sum() for x in (state if isinstance(state, tuple) else (state,))).backward()
print(tried)
"""


@pytest.mark.parametrize("nodes", [NODES, "host:1GiB"])
def test_every_rnn_trains(run_python: RunProgram, nodes: str):
    """Their backward passes write tensors that the forward pass kept: oneDNN's workspace, cuDNN's reserve."""
    done = run_python("-c", RNNS, nodes=nodes, INNKEEPER_STRESS="hash", timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "40"


def test_pytorch_s_modules_have_the_bits_of_the_cpu(run_python: RunProgram, tmp_path: Path):
    plain, hashed = (digests(run_python, tmp_path, device) for device in ("cpu", "managed"))
    assert len(plain) >= 120, "modules that were tried before are not there"
    assert hashed == plain


def digests(run_python: RunProgram, directory: Path, device: str) -> dict[str, str]:
    """Digests of each module's result and gradients, if PyTorch's own sample runs on the CPU."""
    found = directory / f"{device}.json"
    settings = {
        "PYTORCH_OWN_LOADED": "1" if device == "managed" else "0",
        "PYTORCH_OWN_DEVICE": device,
        "PYTORCH_OWN_FOUND": str(found),
        "OMP_NUM_THREADS": "1",
        "INNKEEPER_STRESS": "hash",
    }
    run_python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", OWN, "-c", os.devnull,
        OWN / "test_databases.py", "-k", "test_module_", nodes=NODES, timeout=900, **settings,
    )  # fmt: skip
    read: dict[str, str] = json.loads(found.read_text())
    return read
