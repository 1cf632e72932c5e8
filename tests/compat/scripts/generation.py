"""transformers' generate: each cache and each way to search. A failure is a result, too."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

device = torch.accelerator.current_accelerator() or torch.device("cpu")
small = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "initializer_range": 0.3,
}  # fmt: skip
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**small)).eval().to(device)
helper = LlamaForCausalLM(LlamaConfig(**small | {"num_hidden_layers": 1})).eval().to(device)
sliding = MistralForCausalLM(MistralConfig(**small, sliding_window=8)).eval().to(device)
prompt = torch.tensor([[1, 5, 9, 13, 17, 21]], device=device)
four = {"num_beams": 4}
ways = {
    "dynamic cache": (model, {}),
    "no cache": (model, {"use_cache": False}),
    "static cache": (model, {"cache_implementation": "static"}),
    "sliding window, dynamic": (sliding, {}),
    "sliding window, static": (sliding, {"cache_implementation": "static"}),
    "offloaded cache": (model, {"cache_implementation": "offloaded"}),
    "offloaded static cache": (model, {"cache_implementation": "offloaded_static"}),
    "quantized cache, quanto": (
        model, {"cache_implementation": "quantized", "cache_config": {"backend": "quanto", "nbits": 4}},
    ),
    "quantized cache, hqq": (
        model, {"cache_implementation": "quantized", "cache_config": {"backend": "hqq", "nbits": 4}},
    ),
    "beam search": (model, four),
    "beam search, static cache": (model, four | {"cache_implementation": "static"}),
    "sampling": (model, {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8}),
    "beam sampling": (model, four | {"do_sample": True}),
    "assisted": (model, {"assistant_model": helper}),
    "prompt lookup": (model, {"prompt_lookup_num_tokens": 3}),
    "penalties": (model, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}),
    "prefill in chunks": (model, {"prefill_chunk_size": 4}),
}  # fmt: skip
# The CPU has no device to offload to, and would fail: compare with the same cache without offloading.
if device.type == "cpu":
    ways |= {"offloaded cache": ways["dynamic cache"], "offloaded static cache": ways["static cache"]}


def generated(generator, asked):
    torch.manual_seed(3)
    try:
        settings = {"do_sample": False, "max_new_tokens": 24} | asked
        return generator.generate(prompt, attention_mask=torch.ones_like(prompt), **settings).tolist()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


results = {way: generated(generator, asked) for way, (generator, asked) in ways.items()}
