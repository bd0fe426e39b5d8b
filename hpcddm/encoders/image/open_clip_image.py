"""Image tower of CLIP (Radford et al., arXiv 2103.00020) and its kin, as open_clip runs it."""

import re
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32
from pydantic import Field
from torch import Tensor

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import label, preparation_label
from hpcddm.config.schema import Positive
from hpcddm.config.weights import ImageNetworkSettings
from hpcddm.encoders.image.network_encoder import NetworkEncoder, Preparation
from hpcddm.encoders.open_clip_network import load_network, load_tokenizer
from hpcddm.encoders.open_clip_settings import OpenClipSettings
from hpcddm.files.foreign_json import ForeignJson

VIT_SIZES = {192: "ti", 384: "s", 512: "m", 768: "b", 1024: "l", 1280: "h", 1408: "g", 1664: "bigg"}
"""Letters of the sizes of vision transformers, by width."""

RESNETS = {80: "rn50x4", 96: "rn50x16", 128: "rn50x64"}
"""CLIP's names of wide residual networks, by width; others are named after the number of their layers."""
TEXTS_AT_ONCE = 64
Sides = Annotated[list[Positive], Field(min_length=1)]


class OpenClipImagesSettings(OpenClipSettings, ImageNetworkSettings):
    """Image features in the space that images share with texts, `width` values (512 for ViT-B, 768 for ViT-L)."""

    has_text: ClassVar[bool] = True

    def dimensions(self, data: ImageShape) -> int:
        return self.width

    def evaluator_label(self) -> str:
        described = self.described_network()
        size = described.take("model_cfg.vision_cfg.image_size", Positive | Sides, 224)
        side = size if isinstance(size, int) else size[0]
        prepared = preparation_label(side, side, described.take("preprocess_cfg.interpolation", str, "bicubic"))
        name = self.architecture or _tower_name(described)
        return label("clip", re.sub(f"[-_]{side}$", "", name), self.precision_label, prepared)


def _tower_name(described: ForeignJson) -> str:
    """Return open_clip's usual name of an image tower from its description."""
    tower = ForeignJson(described.take("model_cfg.vision_cfg", dict[str, Any]), described.path)
    layers, width = tower.take("layers", int | list[int], 12), tower.take("width", int, 768)
    patch = tower.take("patch_size", int, 16)
    if "timm_model_name" in tower:
        name = tower.take("timm_model_name", str)
    elif isinstance(layers, list):
        name = RESNETS.get(width, f"rn{3 * sum(layers) + 2}")
    else:
        name = f"vit-{VIT_SIZES.get(width, f'w{width}')}-{patch}"
    return name + ("-quickgelu" if described.take("model_cfg.quick_gelu", bool, False) else "")


class OpenClipImages(NetworkEncoder[OpenClipImagesSettings]):
    """Projected features, not normalised; the clustering does that itself."""

    def __init__(self, settings: OpenClipImagesSettings) -> None:
        super().__init__(settings)
        self.network = load_network(settings, self.device)
        prepared = self.network.visual.preprocess_cfg
        side = prepared["size"] if isinstance(prepared["size"], int) else prepared["size"][0]
        mean, deviation, interpolation = (prepared[key] for key in ("mean", "std", "interpolation"))
        self.prepare_as_stated(Preparation(side, side, mean, deviation, interpolation))

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer of the text tower."""
        return load_tokenizer(self.settings)

    @torch.no_grad()
    def text_features(self, texts: list[str]) -> Float32[np.ndarray, "n d"]:
        parts = [texts[first : first + TEXTS_AT_ONCE] for first in range(0, len(texts), TEXTS_AT_ONCE)]
        features = [self.network.encode_text(self.tokenizer(part).to(self.device)).float().cpu() for part in parts]
        return torch.cat(features).numpy() if features else np.empty((0, self.settings.width), np.float32)

    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        features: Tensor = self.network.encode_image(planes)
        return features
