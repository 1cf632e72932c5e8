"""transformers' continuous batching: requests of many lengths in one pool of cache blocks."""

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

device = torch.accelerator.current_accelerator() or torch.device("cpu")
torch.manual_seed(0)
model = (
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            attn_implementation="sdpa",
        )  # fmt: skip
    )
    .eval()
    .to(device)
)
prompts = [[1, *range(5, 5 + length)] for length in (3, 9, 5, 12)]
done = model.generate_batch(
    inputs=prompts,
    generation_config=GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=2, pad_token_id=0),
    continuous_batching_config=ContinuousBatchingConfig(page_size=16, num_blocks=32, max_batch_tokens=64),
    progress_bar=False,
)
results = {"tokens": [done[name].generated_tokens for name in sorted(done)]}
