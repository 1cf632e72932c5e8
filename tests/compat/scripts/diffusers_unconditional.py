"""diffusers' training loop for images without a prompt, and sampling from the trained model."""

import torch
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch.utils.data import DataLoader


def trained(down, up, **options):
    torch.manual_seed(0)
    model = UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        attention_head_dim=8, down_block_types=down, up_block_types=up, **options,
    )  # fmt: skip
    images = torch.randn(32, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(images, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(2))
    noises = DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rate = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=8)
    accelerator = Accelerator()
    model, optimizer, loader, rate = accelerator.prepare(model, optimizer, loader, rate)
    torch.manual_seed(3)
    losses = []
    for epoch in range(2):
        for clean in loader:
            noise = torch.randn(clean.shape, device=clean.device)
            steps = torch.randint(0, 100, (clean.shape[0],), device=clean.device, dtype=torch.int64)
            noisy = noises.add_noise(clean, noise, steps)
            with accelerator.accumulate(model):
                predicted = model(noisy, steps, return_dict=False)[0]
                loss = torch.nn.functional.mse_loss(predicted, noise)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                rate.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    pipeline = DDPMPipeline(unet=accelerator.unwrap_model(model), scheduler=noises)
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline(
        batch_size=2, num_inference_steps=5, generator=torch.Generator().manual_seed(4), output_type="np"
    ).images
    return losses, model.state_dict(), torch.from_numpy(drawn)


results = {
    "convolutions alone": trained(
        ("DownBlock2D", "DownBlock2D"), ("UpBlock2D", "UpBlock2D"), add_attention=False
    ),
    "with attention": trained(("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")),
}
