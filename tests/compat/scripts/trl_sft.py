"""TRL's SFTTrainer on tokens of our own, packed."""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w1", eos_token="w2")
torch.manual_seed(0)
model = Qwen2ForCausalLM(
    Qwen2Config(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=2,
    )  # fmt: skip
)
texts = [" ".join(f"w{(3 + i * k) % 61 + 3}" for i in range(20)) for k in range(1, 33)]
trainer = SFTTrainer(
    model=model,
    args=SFTConfig(
        "out",
        max_steps=6,
        per_device_train_batch_size=4,
        max_length=32,
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        dataset_num_proc=None,
        bf16=False,
    ),  # fmt: skip
    train_dataset=Dataset.from_dict({"text": texts}),
    processing_class=tokenizer,
)
trainer.train()

losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
results = {"losses": losses, "weights": model.state_dict()}
