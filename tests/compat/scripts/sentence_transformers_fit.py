"""sentence-transformers: training by pairs, encoding, and a semantic search."""

import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses,
    models, util,
)  # fmt: skip
from tokenizers import Tokenizer, models as kinds, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

words = Tokenizer(kinds.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", pad_token="w1").save_pretrained("small")
torch.manual_seed(0)
config = BertConfig(
    vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    hidden_dropout_prob=0, attention_probs_dropout_prob=0, pad_token_id=1,
)  # fmt: skip
BertModel(config).save_pretrained("small")

transformer = models.Transformer("small")
model = SentenceTransformer(modules=[transformer, models.Pooling(32)])
pairs = {
    "anchor": [f"w{3 + i} w{4 + i} w{5 + i}" for i in range(48)],
    "positive": [f"w{4 + i} w{5 + i} w{6 + i}" for i in range(48)],
}
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        "out",
        max_steps=6,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
    ),  # fmt: skip
    train_dataset=Dataset.from_dict(pairs),
    loss=losses.MultipleNegativesRankingLoss(model),
)
trainer.train()

found = model.encode(pairs["anchor"], convert_to_tensor=True, show_progress_bar=False)
hits = util.semantic_search(found[:4], found, top_k=3)
seen = [line["loss"] for line in trainer.state.log_history if "loss" in line]
results = {"losses": seen, "weights": model.state_dict(), "embeddings": found, "hits": hits}
