"""Tools for short memory: device maps, weights on disk, offloading of diffusers and accelerate."""

import torch
from accelerate import cpu_offload, dispatch_model, infer_auto_device_map, load_checkpoint_and_dispatch
from accelerate import init_empty_weights
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=64, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32,
)  # fmt: skip
torch.manual_seed(0)
LlamaForCausalLM(config).eval().save_pretrained("base")
words = (torch.arange(32)[None] * 3) % 64
device = torch.accelerator.current_accelerator() or torch.device("cpu")


def logits(model):
    with torch.no_grad():
        return model(words.to(device)).logits


def dispatched():
    model = LlamaForCausalLM.from_pretrained("base").eval()
    where = infer_auto_device_map(model, no_split_module_classes=["LlamaDecoderLayer"])
    return logits(dispatch_model(model, where))


def loaded_in_parts():
    with init_empty_weights():
        model = LlamaForCausalLM(config).eval()
    return logits(load_checkpoint_and_dispatch(model, "base/model.safetensors", device_map="auto"))


def on_disk():
    halves = {"model.embed_tokens": 0, "model.norm": 0, "model.rotary_emb": 0, "lm_head": 0}
    halves |= {f"model.layers.{i}": 0 if i < 2 else "disk" for i in range(4)}
    if device.type == "cpu":
        halves = {name: "cpu" if place == 0 else place for name, place in halves.items()}
    model = AutoModelForCausalLM.from_pretrained("base", device_map=halves, offload_folder="disk")
    return logits(model.eval())


def images(place):
    torch.manual_seed(1)
    unet = UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        attention_head_dim=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    pipeline = DDIMPipeline(unet=unet, scheduler=DDIMScheduler(num_train_timesteps=100))
    pipeline.set_progress_bar_config(disable=True)
    place(pipeline)
    drawn = pipeline(
        batch_size=2, num_inference_steps=4, generator=torch.Generator().manual_seed(4), output_type="np"
    )
    return torch.from_numpy(drawn.images)


def by_model(pipeline):
    if device.type != "cpu":
        pipeline.enable_model_cpu_offload()


def by_layer(pipeline):
    if device.type != "cpu":
        pipeline.enable_sequential_cpu_offload()


results = {
    "device_map='auto'": logits(AutoModelForCausalLM.from_pretrained("base", device_map="auto").eval()),
    "dispatch_model": dispatched(),
    "load_checkpoint_and_dispatch": loaded_in_parts(),
    "device_map with a disk": on_disk(),
    "cpu_offload": logits(cpu_offload(LlamaForCausalLM.from_pretrained("base").eval(), device)),
    "enable_model_cpu_offload": images(by_model),
    "enable_sequential_cpu_offload": images(by_layer),
}
