"""QLoRA: a model whose weights are read as 4 bits by bitsandbytes, adapters of peft, Trainer."""

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM
from transformers import Trainer, TrainingArguments

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
LlamaForCausalLM(config).save_pretrained("base")
data = [
    {"input_ids": (torch.arange(32) * k) % 64, "labels": (torch.arange(32) * k) % 64} for k in range(1, 17)
]


def tuned(**quantized):
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(
        "base", quantization_config=BitsAndBytesConfig(**quantized), device_map="auto", dtype=torch.bfloat16
    )
    base = prepare_model_for_kbit_training(base)
    model = get_peft_model(base, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    arguments = TrainingArguments(
        "out", max_steps=6, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
        optim="adamw_torch", report_to=[], disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    adapters = {name: value for name, value in model.state_dict().items() if "lora" in name}
    return [line["loss"] for line in trainer.state.log_history if "loss" in line], adapters


results = {
    "nf4": tuned(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16),
    "nf4, scales quantized too": tuned(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    ),
    "fp4": tuned(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.float32),
}
