"""peft's methods, one by one: three steps of each on the same small Llama."""

import torch
import peft
from transformers import LlamaConfig, LlamaForCausalLM

device = torch.accelerator.current_accelerator() or torch.device("cpu")
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64,
)  # fmt: skip
linear, task = {"target_modules": ["q_proj", "v_proj"]}, {"task_type": "CAUSAL_LM"}
methods = {
    "LoRA": peft.LoraConfig(r=4, **linear, **task),
    "rsLoRA": peft.LoraConfig(r=4, use_rslora=True, **linear, **task),
    "DoRA": peft.LoraConfig(r=4, use_dora=True, **linear, **task),
    "PiSSA": peft.LoraConfig(r=4, init_lora_weights="pissa_niter_2", **linear, **task),
    "OLoRA": peft.LoraConfig(r=4, init_lora_weights="olora", **linear, **task),
    "AdaLoRA": peft.AdaLoraConfig(init_r=4, target_r=2, total_step=3, tinit=1, tfinal=1, **linear, **task),
    "LoHa": peft.LoHaConfig(r=4, **linear, **task),
    "LoKr": peft.LoKrConfig(r=4, **linear, **task),
    "OFT": peft.OFTConfig(r=0, oft_block_size=4, **linear, **task),
    "BOFT": peft.BOFTConfig(boft_block_size=4, **linear, **task),
    "VeRA": peft.VeraConfig(r=4, **linear, **task),
    "FourierFT": peft.FourierFTConfig(n_frequency=16, **linear, **task),
    "HRA": peft.HRAConfig(r=4, **linear, **task),
    "VBLoRA": peft.VBLoRAConfig(r=4, num_vectors=8, vector_length=8, topk=2, **linear, **task),
    "IA3": peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"], **task),
    "LN tuning": peft.LNTuningConfig(target_modules=["input_layernorm"], **task),
    "prompt tuning": peft.PromptTuningConfig(num_virtual_tokens=4, **task),
    "prefix tuning": peft.PrefixTuningConfig(num_virtual_tokens=4, **task),
    "p-tuning": peft.PromptEncoderConfig(num_virtual_tokens=4, encoder_hidden_size=16, **task),
}
tokens = torch.randint(0, 64, (4, 16), generator=torch.Generator().manual_seed(1))


def trained(method):
    torch.manual_seed(0)
    model = peft.get_peft_model(LlamaForCausalLM(config), method).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for step in range(3):
        loss = model(input_ids=tokens.to(device), labels=tokens.to(device)).loss
        loss.backward()
        optimizer.step()
        if hasattr(model.base_model, "update_and_allocate"):
            model.base_model.update_and_allocate(step)
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


results = {name: trained(method) for name, method in methods.items()}
