"""Weights that transformers quantizes as it reads a model: torchao's 8 and 4 bits, quanto's 8."""

import torch
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, QuantoConfig, TorchAoConfig

config = LlamaConfig(
    vocab_size=64, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, eos_token_id=None, bos_token_id=None, pad_token_id=0,
)  # fmt: skip
torch.manual_seed(0)
LlamaForCausalLM(config).save_pretrained("base")


def written(quantized):
    model = AutoModelForCausalLM.from_pretrained(
        "base", quantization_config=quantized, device_map="auto"
    ).eval()
    words = (torch.arange(16)[None] * 3) % 64
    with torch.no_grad():
        logits = model(words.to(model.device)).logits
    return logits, model.generate(words.to(model.device), max_new_tokens=16, do_sample=False)


results = {
    "torchao int8": written(TorchAoConfig(Int8WeightOnlyConfig())),
    "torchao int4": written(
        TorchAoConfig(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    ),
    "quanto int8": written(QuantoConfig(weights="int8")),
}
