"""LoRA of a conditional U-Net by peft, as diffusers' training example does it; saved, loaded and fused."""

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
unet = UNet2DConditionModel(
    sample_size=16, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
    cross_attention_dim=32, attention_head_dim=8, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
unet.requires_grad_(False)
unet.add_adapter(
    LoraConfig(r=4, init_lora_weights="gaussian", target_modules=["to_k", "to_q", "to_v", "to_out.0"])
)
stream = torch.Generator().manual_seed(1)
latents = torch.randn(16, 4, 16, 16, generator=stream)
prompts = torch.randn(16, 8, 32, generator=stream)
loader = DataLoader(TensorDataset(latents, prompts), batch_size=4, generator=torch.Generator().manual_seed(3))
noises = DDPMScheduler(num_train_timesteps=100)
adapted = [parameter for parameter in unet.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(adapted, lr=1e-3)
accelerator = Accelerator()
unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
torch.manual_seed(2)
losses = []
for _epoch in range(2):
    for clean, prompt in loader:
        noise = torch.randn(clean.shape, device=clean.device)
        steps = torch.randint(0, 100, (clean.shape[0],), device=clean.device)
        predicted = unet(noises.add_noise(clean, noise, steps), steps, prompt, return_dict=False)[0]
        loss = torch.nn.functional.mse_loss(predicted.float(), noise.float())
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(adapted, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())

unet = accelerator.unwrap_model(unet)
weights = get_peft_model_state_dict(unet)
unet.fuse_lora()
with torch.no_grad():
    drawn = unet(latents[:1].to(unet.device), 3, prompts[:1].to(unet.device), return_dict=False)[0]
results = {"losses": losses, "adapter": weights, "fused": drawn}
