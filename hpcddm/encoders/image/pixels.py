"""Down-sampled pixels as features, without weights or dependencies, for clustering small centred images."""

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float32, UInt8

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import ImageEncoderSettings, label
from hpcddm.config.schema import Positive
from hpcddm.encoders.image.base import ImageEncoder


class PixelFeaturesSettings(ImageEncoderSettings):
    """Side `size` of the down-sampled image: features have size^2 x channels values."""

    uses_gpu: ClassVar[bool] = False

    size: Positive = 7

    def dimensions(self, data: ImageShape) -> int:
        return self.size**2 * data.channels

    def evaluator_label(self) -> str:
        return label("pixels", self.size)

    def check(self, experiment: Any) -> None:
        """Raise ValueError when this would enlarge images."""
        if self.size > experiment.data.image_size:
            raise ValueError(f"pixel size {self.size} exceeds image_size {experiment.data.image_size}")


class PixelFeatures(ImageEncoder[PixelFeaturesSettings]):
    """Means of areas, scaled to [0, 1]."""

    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        return (F.adaptive_avg_pool2d(planes, self.settings.size).flatten(1) / 255).numpy()
