"""Encoders of images by a network of a public package: batches, and the preparation of images for it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hpcddm.config.weights import SettingsWithWeights
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.jobs.devices import DTYPES, current_device

W = TypeVar("W", bound=SettingsWithWeights, covariant=True)
IMAGES_AT_ONCE = 64
"""Batch size, which bounds memory; fixed, so that a range always gives the same features."""


@dataclass(frozen=True)
class Preparation:
    """Preparation of images: resized to a square, cut to the square in its middle, scaled by mean and deviation.

    A grey image gets three equal bands. mean, deviation: of the bands, values being in [0, 1].
    """

    resized: int
    side: int
    mean: Sequence[float]
    deviation: Sequence[float]
    interpolation: str = "bicubic"

    def __call__(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n 3 {self.side} {self.side}"]:
        planes = images.permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
        # As Pillow: rows, then columns, each to whole values, whose range bicubic interpolation leaves.
        for size in ((planes.shape[2], self.resized), (self.resized, self.resized)):
            planes = F.interpolate(planes, size, mode=self.interpolation, antialias=True).round().clamp(0, 255)
        planes = planes / 255
        first = (self.resized - self.side) // 2
        planes = planes[:, :, first : first + self.side, first : first + self.side]
        mean, deviation = (planes.new_tensor(values).view(1, 3, 1, 1) for values in (self.mean, self.deviation))
        return (planes - mean) / deviation


class NetworkEncoder(ImageEncoder[W]):
    """Encoder whose features are those of a network, computed in batches on the device of the process."""

    network: Any
    preparation: Preparation

    def __init__(self, settings: W) -> None:
        super().__init__(settings)
        self.device = current_device()

    @torch.no_grad()
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        features = []
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = torch.from_numpy(images[start : start + IMAGES_AT_ONCE]).to(self.device)
            prepared = self.preparation(part).to(DTYPES[self.settings.precision])
            features.append(self.encode_prepared(prepared).float().cpu())
        return torch.cat(features).numpy()

    @abstractmethod
    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Compute the features of prepared images."""
