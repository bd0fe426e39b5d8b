"""DINOv2, a vision transformer trained without labels (Oquab et al., arXiv 2304.07193), as transformers runs it."""

from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from hpcddm.config import weights
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.config.shapes import ImageShape
from hpcddm.config.weights import Layout, SettingsWithWeights
from hpcddm.encoders.image.network import NetworkEncoder, Preparation
from hpcddm.encoders.layouts import TRANSFORMERS_IMAGE
from hpcddm.encoders.packages import from_pretrained, loaded, package
from hpcddm.files import reading

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZED, SIDE, BICUBIC = 256, 224, 3
"""Preparation by the authors, with Pillow's number of the interpolation; a preprocessor_config.json replaces it."""


class Settings(SettingsWithWeights, ImageEncoderSettings):
    """Number of features `width` (384 of small, 768 of base, 1024 of large, 1536 of giant), and what is taken as them.

    `pooling` takes the class token, or the mean of the patches' tokens, both after the last norm.
    """

    layout: ClassVar[Layout] = TRANSFORMERS_IMAGE

    width: Positive = 1024
    pooling: Literal["cls", "mean"] = "cls"

    def dimensions(self, data: ImageShape) -> int:
        return self.width

    def check_config(self, config: dict[str, Any]) -> None:
        """Raise ValueError for weights of another network or width."""
        if not str(config.get("model_type")).startswith("dinov2"):
            raise ValueError(f"config.json has model_type {config.get('model_type')} and not dinov2")
        if config.get("hidden_size") != self.width:
            raise ValueError(f"width is {self.width} and config.json has hidden_size {config.get('hidden_size')}")


class DinoV2(NetworkEncoder[Settings]):
    """Tokens of the last layer, pooled."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        transformers = package("transformers", settings)
        # With registers it is a network of its own.
        with_registers = weights.config(settings).get("model_type") == "dinov2_with_registers"
        kind = transformers.Dinov2WithRegistersModel if with_registers else transformers.Dinov2Model
        self.network = loaded(settings, lambda folder: from_pretrained(kind, folder), self.device)
        self.first_patch = 1 + getattr(self.network.config, "num_register_tokens", 0)
        self.preparation = _preparation(settings)

    def pooled(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        tokens = self.network(planes).last_hidden_state
        return tokens[:, 0] if self.settings.pooling == "cls" else tokens[:, self.first_patch :].mean(1)


def _preparation(settings: Settings) -> Preparation:
    """Return the preparation that lies beside the weights, else that of the authors."""
    file = settings.weights.place / "preprocessor_config.json"
    values = reading.need_json(file, follows_links=True) if file.exists() else {}
    side = values.get("crop_size", {}).get("height", SIDE)
    resized = values.get("size", {}).get("shortest_edge", RESIZED)
    return Preparation(
        resized if values.get("do_resize", True) else side,
        side if values.get("do_center_crop", True) else resized,
        values.get("image_mean", MEAN),
        values.get("image_std", DEVIATION),
        "bicubic" if values.get("resample", BICUBIC) == BICUBIC else "bilinear",
    )
