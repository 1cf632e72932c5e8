"""Models of timm: the smallest of each family, with smaller images, and others made small."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import timm
from subject import Candidate, Subject, drawn, seeded

import torch

SIDE = 64  # Side of the images, pixels.

# The smallest model of each family.
AS_THEY_ARE = [
    "resnet10t", "skresnet18", "resnest14d", "efficientnet_b0", "mobilenetv3_small_050",
    "mobilenetv4_conv_small_035", "ghostnet_050", "lcnet_035", "mnasnet_small", "tinynet_e", "rexnet_100",
    "hardcorenas_a", "efficientvit_b0", "efficientvit_m0", "repvgg_a0", "repghostnet_050",
    "edgenext_xx_small", "convnext_atto", "convnextv2_atto", "mobilevit_xxs", "mobilevitv2_050",
    "mobileone_s0", "fastvit_t8", "dla46_c", "hrnet_w18_small", "regnety_002", "poolformer_s12",
    "pvt_v2_b0", "crossvit_tiny_240", "xcit_nano_12_p16_224", "inception_next_atto", "mambaout_femto",
    "repvit_m0_9", "starnet_s1", "shvit_s1", "swiftformer_xs", "tiny_vit_5m_224", "densenet121",
    "cspresnet50", "darknet17", "nf_resnet26", "dpn48b", "ese_vovnet19b_dw", "fasternet_t0", "test_nfnet",
    "test_efficientnet_gn", "lambda_resnet26t", "hgnet_tiny",
]  # fmt: skip
# Models for a fixed image size, which get a smaller one.
RESIZED = [
    "vit_tiny_patch16_224", "deit_tiny_patch16_224", "cait_xxs24_224", "mixer_s32_224", "gmlp_ti16_224",
    "resmlp_12_224", "pit_ti_224", "convit_tiny", "eva02_tiny_patch14_224", "levit_128s", "coat_lite_tiny",
    "visformer_tiny",
]  # fmt: skip
SMALLER: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": {"img_size": SIDE, "embed_dim": 96, "depth": 4, "num_heads": 4},
    "swin_tiny_patch4_window7_224": {"img_size": SIDE, "window_size": 4, "depths": (2, 2, 2, 2)},
    "swinv2_tiny_window8_256": {"img_size": SIDE, "window_size": 4, "depths": (1, 1, 2, 1)},
    "hiera_tiny_224": {"img_size": SIDE, "embed_dim": 32, "stages": (1, 1, 2, 1)},
    "davit_tiny": {"depths": (1, 1, 1, 1), "embed_dims": (32, 64, 128, 256), "num_heads": (1, 2, 4, 8)},
    "test_maxvit": {"img_size": SIDE},
    "test_coatnet": {"img_size": SIDE},
}
MODELS: dict[str, dict[str, Any]] = {
    **{name: {} for name in AS_THEY_ARE},
    **{name: {"img_size": SIDE} for name in RESIZED},
    **SMALLER,
}


def prepare(name: str, smaller: dict[str, Any]) -> Subject:
    """A classifier of ten classes."""
    inputs = {"x": drawn(2, 3, SIDE, SIDE), "target": torch.tensor([0, 1])}
    return Subject(
        seeded(lambda: timm.create_model(name, pretrained=False, num_classes=10, **smaller)), inputs, loss
    )


def loss(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Loss of a classifier, or the sum of its heads' losses."""
    found = model(inputs["x"])
    heads = found if isinstance(found, (list, tuple)) else [found]
    return sum(torch.nn.functional.cross_entropy(head, inputs["target"]) for head in heads)


def candidates() -> Iterator[Candidate]:
    """All models of this module."""
    for name, smaller in MODELS.items():
        yield Candidate(name, "image classification", partial(prepare, name, smaller))
