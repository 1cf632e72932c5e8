"""peft's LoRA, trained by transformers' Trainer, saved, loaded and merged."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
torch.manual_seed(0)
base = LlamaForCausalLM(config)
base.save_pretrained("base")
model = get_peft_model(
    base, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
)
data = [
    {"input_ids": (torch.arange(32) * k) % 64, "labels": (torch.arange(32) * k) % 64} for k in range(1, 17)
]
arguments = TrainingArguments(
    "out", max_steps=6, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
    gradient_checkpointing=True, report_to=[], disable_tqdm=True, save_strategy="no",
)  # fmt: skip
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train()
model.save_pretrained("adapter")

device = trainer.args.device
loaded = PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained("base").to(device), "adapter")
merged = loaded.merge_and_unload().eval()
with torch.no_grad():
    logits = merged(data[0]["input_ids"][None].to(device)).logits

losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
results = {"losses": losses, "weights": model.state_dict(), "merged": logits}
