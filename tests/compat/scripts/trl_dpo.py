"""TRL's DPOTrainer, which makes its reference model itself."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import DPOConfig, DPOTrainer

words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w1", eos_token="w2")
torch.manual_seed(0)
config = Qwen2Config(
    vocab_size=64, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=1, bos_token_id=2, eos_token_id=2,
)  # fmt: skip
Qwen2ForCausalLM(config).save_pretrained("small")
pairs = {
    "prompt": [f"w{3 + i} w{4 + i}" for i in range(24)],
    "chosen": [f" w{5 + i} w{6 + i} w{7 + i}" for i in range(24)],
    "rejected": [f" w{50 - i} w{49 - i} w{48 - i}" for i in range(24)],
}
model = Qwen2ForCausalLM.from_pretrained("small")
trainer = DPOTrainer(
    model=model,
    ref_model=Qwen2ForCausalLM.from_pretrained("small"),
    args=DPOConfig(
        "out",
        max_steps=5,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        logging_steps=1,
        beta=0.1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        bf16=False,
    ),  # fmt: skip
    train_dataset=Dataset.from_dict(pairs),
    processing_class=tokenizer,
)
trainer.train()

lines = [line for line in trainer.state.log_history if "loss" in line]
results = {
    "losses": [(line["loss"], line["rewards/margins"]) for line in lines],
    "weights": model.state_dict(),
}
