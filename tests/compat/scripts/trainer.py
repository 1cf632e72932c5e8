"""transformers' Trainer on a small GPT-2, with evaluation and a learning rate that warms up."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=64, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
)
model = GPT2LMHeadModel(config)
data = [
    {"input_ids": (torch.arange(32) * k) % 64, "labels": (torch.arange(32) * k) % 64} for k in range(1, 33)
]

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        "out",
        use_cpu=not torch.accelerator.is_available(),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        warmup_steps=2,
        eval_strategy="epoch",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    ),
    train_dataset=data[:24],
    eval_dataset=data[24:],
)
trainer.train()

seen = [line.get("loss", line.get("eval_loss")) for line in trainer.state.log_history]
results = {"losses": seen, "weights": model.state_dict()}
