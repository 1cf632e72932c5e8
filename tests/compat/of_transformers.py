"""The architectures of transformers, one for each name of its tables, and the ways to make them small."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import transformers
from subject import Candidate, Subject, drawn, seeded
from transformers.models.auto import modeling_auto

import torch

# Values that make a configuration small, for each attribute that it has. They apply to its parts, too.
SMALL: dict[str, Any] = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "embed_dim", "dim", "emb_dim"], 32),
    **dict.fromkeys(["word_embed_proj_dim", "embedding_size"], 32),
    **dict.fromkeys(["num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers"], 2),
    **dict.fromkeys(["encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"], 4),
    **dict.fromkeys(["encoder_attention_heads", "decoder_attention_heads"], 4),
    **dict.fromkeys(["num_key_value_heads", "num_experts_per_tok", "n_group", "topk_group"], 2),
    **dict.fromkeys(["intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"], 64),
    **dict.fromkeys(["n_inner", "inner_dim", "mlp_dim", "ffn_hidden_size", "moe_intermediate_size"], 64),
    **dict.fromkeys(["shared_expert_intermediate_size", "max_position_embeddings", "n_positions"], 64),
    **dict.fromkeys(["max_source_positions", "max_target_positions"], 64),
    **dict.fromkeys(["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"], 8),
    **dict.fromkeys(["kv_lora_rank", "q_lora_rank"], 16),
    **dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 4),
    **{"vocab_size": 99, "head_dim": 8, "d_kv": 8, "image_size": 32, "patch_size": 8, "attention_window": 8},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}

MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8}
HEADS = {"num_key_value_heads": 4}  # Latent attention has as many of both.
WINDOWS = {"embed_dim": 24, "num_heads": [3, 6], "depths": [1, 1], "patch_size": 4, "window_size": 4}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_stages": 4, "patch_size": 2}
# Additional values that an architecture requires.
OWN: dict[str, dict[str, Any]] = {
    **dict.fromkeys(["axk1", "axk2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"], HEADS),
    **dict.fromkeys(["glm_moe_dsa", "hy_v4", "minicpm3", "sarvam_mla", "youtu"], HEADS),
    **dict.fromkeys(["bamba", "granitemoehybrid"], MAMBA),
    **dict.fromkeys(["convnext", "convnextv2"], STAGES),
    **dict.fromkeys(["swin", "swinv2", "donut-swin"], WINDOWS),
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "esm": {"vocab_size": 99, "pad_token_id": 0, "mask_token_id": 3, "position_embedding_type": "rotary"},
    "luke": {"entity_vocab_size": 10},
    "mamba2": {"num_heads": 8, "n_groups": 2, "state_size": 8},
    "mobilevitv2": {"image_size": 64, "patch_size": 2},
    "nemotron": {"num_key_value_heads": 2},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "xmod": {"default_language": "en_XX"},
    "zamba2": {"n_mamba_heads": 8, "mamba_headdim": 8},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "prophetnet": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1}
    | {"topk_group": 1, "norm_topk_prob": True},
    "deepseek_v2": HEADS | {"num_experts_per_tok": 2},
    "longcat_flash": HEADS | {"qk_head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "gemma3n_text": {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 99},
    "funnel": {"block_sizes": [1, 1]},
}

Inputs = Callable[[Any], dict[str, torch.Tensor]]


def text(config: Any) -> dict[str, torch.Tensor]:
    tokens = 3 + torch.randint(0, 90, (2, 16), generator=torch.Generator().manual_seed(1))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}


def images(config: Any) -> dict[str, torch.Tensor]:
    size = getattr(config, "image_size", None) or 32
    side = size if isinstance(size, int) else size[0]
    pixels = drawn(2, getattr(config, "num_channels", 3), side, side)
    return {"pixel_values": pixels, "labels": torch.tensor([0, 1])}


# Task, its table in transformers, its inputs. An architecture takes the first task that has it.
TASKS: list[tuple[str, str, Inputs]] = [
    ("causal language model", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", text),
    ("masked language model", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", text),
    ("sequence to sequence", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", text),
    ("image classification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", images),
]


def shrink(config: Any) -> None:
    """Makes a configuration small in place."""
    for name, value in SMALL.items():
        with contextlib.suppress(AttributeError, NotImplementedError):  # The attribute follows from another.
            if type(vars(config).get(name, getattr(config, name, None))) is int:
                setattr(config, name, value)
    if isinstance(getattr(config, "layer_types", None), list):
        with contextlib.suppress(AttributeError):
            config.layer_types = config.layer_types[:2]
    for part in vars(config).values():
        if isinstance(part, transformers.PreTrainedConfig):
            shrink(part)


def unchanged(config: Any) -> None:
    """Configuration, made small."""


def prepare(name: str, class_name: str, inputs_of: Inputs, change: Callable[[Any], None]) -> Subject:
    """A model of this class, whose configuration ``change`` may alter."""
    cls = getattr(transformers, class_name)
    config = cls.config_class()
    shrink(config)
    for option, value in OWN.get(name, {}).items():
        setattr(config, option, value)
    config.use_cache = False
    if (
        getattr(config, "is_encoder_decoder", False)
        and getattr(config, "decoder_start_token_id", None) is None
    ):
        config.decoder_start_token_id = 0
    change(config)
    return Subject(seeded(lambda: cls(config)), inputs_of(config), lambda model, inputs: model(**inputs).loss)


def candidates(change: Callable[[Any], None] = unchanged) -> Iterator[Candidate]:
    """One candidate per name, by the first task that has it. ``change`` may alter its configuration."""
    seen: set[str] = set()
    for task, table, inputs in TASKS:
        for name, classes in getattr(modeling_auto, table).items():
            if name not in seen:
                seen.add(name)
                class_name = classes if isinstance(classes, str) else classes[0]
                yield Candidate(name, task, partial(prepare, name, class_name, inputs, change))
