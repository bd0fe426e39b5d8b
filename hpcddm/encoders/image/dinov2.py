"""DINOv2, a vision transformer trained without labels (Oquab et al., arXiv 2304.07193), as transformers runs it."""

from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from hpcddm.config import weights
from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import ImageEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.config.weights import SettingsWithWeights, WeightsLayout
from hpcddm.encoders.image.network_encoder import NetworkEncoder, Preparation
from hpcddm.encoders.optional_packages import from_pretrained, import_package, load_verified
from hpcddm.encoders.weights_layouts import TRANSFORMERS_IMAGE
from hpcddm.files import checked_reads

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RESIZED, SIDE, BICUBIC = 256, 224, 3
"""Preparation by the authors, with Pillow's number of the interpolation; a preprocessor_config.json replaces it."""


class DinoV2Settings(SettingsWithWeights, ImageEncoderSettings):
    """Number of features `width` (384 of small, 768 of base, 1024 of large, 1536 of giant), and what is taken as them.

    `pooling` takes the class token, or the mean of the patches' tokens, both after the last norm.
    """

    layout: ClassVar[WeightsLayout] = TRANSFORMERS_IMAGE

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


class DinoV2(NetworkEncoder[DinoV2Settings]):
    """Tokens of the last layer, pooled."""

    def __init__(self, settings: DinoV2Settings) -> None:
        super().__init__(settings)
        transformers = import_package("transformers", settings)
        # The variant with registers is a different network.
        with_registers = weights.read_config(settings).get("model_type") == "dinov2_with_registers"
        kind = transformers.Dinov2WithRegistersModel if with_registers else transformers.Dinov2Model
        self.network = load_verified(settings, lambda folder: from_pretrained(kind, folder), self.device)
        self.first_patch = 1 + getattr(self.network.config, "num_register_tokens", 0)
        self.preparation = _preparation(settings)

    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        tokens = self.network(planes).last_hidden_state
        return tokens[:, 0] if self.settings.pooling == "cls" else tokens[:, self.first_patch :].mean(1)


def _preparation(settings: DinoV2Settings) -> Preparation:
    """Return the preparation in the folder of the weights, or else the authors' preparation."""
    file = settings.weights.place / "preprocessor_config.json"
    values = checked_reads.read_required_json(file, follows_links=True) if file.exists() else {}
    side = values.get("crop_size", {}).get("height", SIDE)
    resized = values.get("size", {}).get("shortest_edge", RESIZED)
    return Preparation(
        resized if values.get("do_resize", True) else side,
        side if values.get("do_center_crop", True) else resized,
        values.get("image_mean", MEAN),
        values.get("image_std", DEVIATION),
        "bicubic" if values.get("resample", BICUBIC) == BICUBIC else "bilinear",
    )
