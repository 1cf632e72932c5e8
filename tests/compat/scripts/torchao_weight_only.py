"""torchao: weights of 8 and of 4 bits, for a model that only computes forward."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup, quantize_

device = torch.accelerator.current_accelerator() or torch.device("cpu")
x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))


def quantized(config):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(
        device
    )
    quantize_(model, config)
    with torch.no_grad():
        return model(x.to(device))


results = {
    "int8": quantized(Int8WeightOnlyConfig()),
    "int4": quantized(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))),
}
