"""Models of diffusers: U-Nets, transformers, ControlNets and autoencoders, made small by their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import diffusers
from subject import Candidate, Subject, drawn, seeded

import torch

Arguments = dict[str, Any]


class Model(NamedTuple):
    """A class of diffusers, with the kind of model, its arguments and its inputs."""

    kind: str
    name: str
    arguments: Arguments
    inputs: Arguments


STEP = torch.tensor([3, 7])
LATENT, WORDS = drawn(2, 4, 16, 16), drawn(2, 6, 16)
FRAMES, POOLED = drawn(2, 4, 4, 16, 16), drawn(2, 16)
IMAGE, VIDEO = drawn(2, 3, 32, 32), drawn(1, 3, 5, 16, 16)
LATENTS: Arguments = {"hidden_states": LATENT, "timestep": STEP}
TO_WORDS: Arguments = {"timestep": STEP, "encoder_hidden_states": WORDS}

UNET: Arguments = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
CROSSED: Arguments = UNET | {"cross_attention_dim": 16, "attention_head_dim": 8}
DOWN_2D: Arguments = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
UP_2D: Arguments = {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
DIT: Arguments = {"num_layers": 2, "num_attention_heads": 4, "attention_head_dim": 8}
JOINT: Arguments = DIT | {"joint_attention_dim": 16}
VAE: Arguments = {"block_out_channels": (16, 32), "norm_num_groups": 8, "latent_channels": 4}
CODERS: Arguments = {
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}


def across(kind: str) -> Arguments:
    """The blocks of a U-Net over frames."""
    return {
        "down_block_types": (f"CrossAttnDownBlock{kind}", f"DownBlock{kind}"),
        "up_block_types": (f"UpBlock{kind}", f"CrossAttnUpBlock{kind}"),
    }


MODELS = [
    Model(
        "U-Net",
        "UNet2DModel",
        UNET
        | {"sample_size": 16, "attention_head_dim": 8}
        | {"down_block_types": ("DownBlock2D", "AttnDownBlock2D")}
        | {"up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        {"sample": drawn(2, 3, 16, 16), "timestep": STEP},
    ),
    Model("U-Net", "UNet2DConditionModel", CROSSED | DOWN_2D | UP_2D, TO_WORDS | {"sample": LATENT}),
    Model("U-Net", "UNet3DConditionModel", CROSSED | across("3D"), TO_WORDS | {"sample": FRAMES}),
    Model(
        "U-Net",
        "UNetMotionModel",
        UNET
        | {"cross_attention_dim": 16, "num_attention_heads": 2, "motion_num_attention_heads": 2}
        | across("Motion"),
        {"sample": FRAMES, "timestep": 3, "encoder_hidden_states": drawn(8, 6, 16)},
    ),
    Model(
        "U-Net",
        "UNet1DModel",
        {"extra_in_channels": 64, "sample_size": 64},
        {"sample": drawn(2, 2, 64), "timestep": STEP},
    ),
    Model(
        "ControlNet",
        "ControlNetModel",
        CROSSED | DOWN_2D | {"conditioning_embedding_out_channels": (8, 16)},
        TO_WORDS | {"sample": LATENT, "controlnet_cond": IMAGE},
    ),
    Model(
        "ControlNet",
        "SD3ControlNetModel",
        JOINT
        | {"sample_size": 16, "in_channels": 4, "caption_projection_dim": 32, "pooled_projection_dim": 16}
        | {"pos_embed_max_size": 16},
        LATENTS | TO_WORDS | {"pooled_projections": POOLED, "controlnet_cond": LATENT},
    ),
    Model(
        "transformer",
        "DiTTransformer2DModel",
        DIT | {"sample_size": 16, "num_embeds_ada_norm": 10},
        LATENTS | {"class_labels": STEP},
    ),
    Model(
        "transformer",
        "SD3Transformer2DModel",
        JOINT
        | {"sample_size": 16, "in_channels": 4, "out_channels": 4, "caption_projection_dim": 32}
        | {"pooled_projection_dim": 16, "pos_embed_max_size": 16, "qk_norm": "rms_norm"},
        LATENTS | TO_WORDS | {"pooled_projections": POOLED},
    ),
    Model(
        "transformer",
        "FluxTransformer2DModel",
        JOINT
        | {"in_channels": 4, "num_single_layers": 2, "pooled_projection_dim": 16}
        | {"axes_dims_rope": (2, 2, 4)},
        TO_WORDS
        | {"hidden_states": drawn(2, 16, 4), "pooled_projections": POOLED}
        | {"img_ids": torch.arange(48.0).view(16, 3), "txt_ids": torch.zeros(6, 3)},
    ),
    Model(
        "transformer",
        "PixArtTransformer2DModel",
        DIT | {"sample_size": 16, "cross_attention_dim": 32, "caption_channels": 16},
        LATENTS | TO_WORDS | {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
    Model(
        "transformer",
        "SanaTransformer2DModel",
        DIT
        | {"in_channels": 4, "out_channels": 4, "num_cross_attention_heads": 4, "sample_size": 16}
        | {"cross_attention_head_dim": 8, "cross_attention_dim": 32, "caption_channels": 16},
        LATENTS | TO_WORDS,
    ),
    Model(
        "transformer",
        "AuraFlowTransformer2DModel",
        {"sample_size": 16, "num_mmdit_layers": 1, "num_single_dit_layers": 1, "attention_head_dim": 8}
        | {"num_attention_heads": 4, "joint_attention_dim": 16, "caption_projection_dim": 32}
        | {"pos_embed_max_size": 64},
        LATENTS | TO_WORDS | {"timestep": torch.tensor([0.3, 0.7])},
    ),
    Model(
        "transformer",
        "Transformer2DModel",
        {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "norm_num_groups": 2}
        | {"cross_attention_dim": 16, "dropout": 0.1},
        {"hidden_states": LATENT, "encoder_hidden_states": WORDS},
    ),
    Model(
        "transformer",
        "Lumina2Transformer2DModel",
        {"sample_size": 16, "in_channels": 4, "hidden_size": 24, "num_layers": 2, "num_refiner_layers": 1}
        | {"num_attention_heads": 3, "num_kv_heads": 1, "multiple_of": 2, "axes_dim_rope": (4, 2, 2)}
        | {"axes_lens": (32, 32, 32), "cap_feat_dim": 16},
        LATENTS | TO_WORDS | {"encoder_attention_mask": torch.ones(2, 6, dtype=torch.bool)},
    ),
    Model(
        "transformer of videos",
        "CogVideoXTransformer3DModel",
        DIT
        | {"in_channels": 4, "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": 16}
        | {"sample_width": 16, "sample_height": 16, "sample_frames": 13, "max_text_seq_length": 6},
        TO_WORDS | {"hidden_states": FRAMES},
    ),
    Model(
        "transformer of videos",
        "WanTransformer3DModel",
        {"num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4}
        | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "num_layers": 2},
        TO_WORDS | {"hidden_states": FRAMES},
    ),
    Model(
        "transformer of videos",
        "LTXVideoTransformer3DModel",
        DIT | {"in_channels": 4, "out_channels": 4, "cross_attention_dim": 32, "caption_channels": 16},
        TO_WORDS
        | {"hidden_states": drawn(2, 32, 4), "encoder_attention_mask": torch.ones(2, 6)}
        | {"num_frames": 2, "height": 4, "width": 4},
    ),
    Model(
        "transformer of sounds",
        "StableAudioDiTModel",
        DIT
        | {"sample_size": 16, "in_channels": 4, "out_channels": 4, "num_key_value_attention_heads": 2}
        | {"cross_attention_dim": 32, "time_proj_dim": 8, "global_states_input_dim": 8}
        | {"cross_attention_input_dim": 16},
        TO_WORDS | {"hidden_states": drawn(2, 4, 16), "global_hidden_states": drawn(2, 1, 8)},
    ),
    Model("autoencoder", "AutoencoderKL", VAE | CODERS, {"sample": IMAGE, "sample_posterior": True}),
    Model("autoencoder", "VQModel", VAE | CODERS | {"num_vq_embeddings": 32}, {"sample": IMAGE}),
    Model(
        "autoencoder",
        "AutoencoderTiny",
        {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
        | {"num_encoder_blocks": (1, 2), "num_decoder_blocks": (2, 1)},
        {"sample": IMAGE},
    ),
    Model(
        "autoencoder",
        "AutoencoderDC",
        {"latent_channels": 4, "attention_head_dim": 8}
        | {"encoder_block_types": ("ResBlock", "EfficientViTBlock")}
        | {"decoder_block_types": ("ResBlock", "EfficientViTBlock")}
        | {"encoder_block_out_channels": (16, 32), "decoder_block_out_channels": (16, 32)}
        | {"encoder_layers_per_block": (1, 1), "decoder_layers_per_block": (1, 1)}
        | {"encoder_qkv_multiscales": ((), (5,)), "decoder_qkv_multiscales": ((), (5,))},
        {"sample": IMAGE},
    ),
    Model(
        "autoencoder of videos",
        "AutoencoderKLWan",
        {"base_dim": 8, "z_dim": 4, "dim_mult": [1, 2], "num_res_blocks": 1, "temperal_downsample": [True]},
        {"sample": VIDEO},
    ),
    Model(
        "autoencoder of videos",
        "AutoencoderKLCogVideoX",
        {"down_block_types": ("CogVideoXDownBlock3D",) * 2, "up_block_types": ("CogVideoXUpBlock3D",) * 2}
        | {"block_out_channels": (8, 16), "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 2},
        {"sample": VIDEO},
    ),
    Model(
        "autoencoder of sounds",
        "AutoencoderOobleck",
        {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]}
        | {"decoder_channels": 8, "decoder_input_channels": 4},
        {"sample": drawn(2, 2, 64), "sample_posterior": True},
    ),
]


def prepare(model: Model) -> Subject:
    """Random weights by the class's own arguments."""
    return Subject(seeded(lambda: getattr(diffusers, model.name)(**model.arguments)), model.inputs, loss)


def loss(model: torch.nn.Module, inputs: Arguments) -> torch.Tensor:
    """Mean square of the model's output; for a ControlNet of all outputs for its U-Net."""
    found = model(**inputs, return_dict=False)
    parts = [part for given in found for part in (given if isinstance(given, (list, tuple)) else [given])]
    return torch.stack([part.square().mean() for part in parts if part is not None]).sum()


def candidates() -> Iterator[Candidate]:
    """All models of this module."""
    for model in MODELS:
        getattr(diffusers, model.name)  # Imported here, once for all of their processes.
        yield Candidate(model.name, model.kind, partial(prepare, model))
