"""Fine-tunes a classifier with transformers' Trainer, which chooses the device by itself."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

set_seed(0)
config = BertConfig(
    vocab_size=128,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=2,
)
model = BertForSequenceClassification(config)


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count):
        self.words = torch.randint(2, 128, (count, 24))
        self.labels = (self.words[:, 0] > 64).long()

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.labels[i]}


arguments = TrainingArguments(
    output_dir="finetuned",
    max_steps=6,
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    optim="adamw_torch",
)
trainer = Trainer(model=model, args=arguments, train_dataset=Sentences(96), eval_dataset=Sentences(16))
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print(f"step {entry['step']} loss {entry['loss']!r} norm {entry['grad_norm']!r}")
print("eval", repr(trainer.evaluate()["eval_loss"]))
