"""Encoders of images by a network of a public package: batches, and the preparation of images for it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from PIL import Image
from torch import Tensor

from hpcddm.config.image_encoders import preparation_label
from hpcddm.config.weights import ImageNetworkSettings
from hpcddm.encoders.gpu import full_precision
from hpcddm.encoders.image.base import ImageEncoder
from hpcddm.errors import require
from hpcddm.jobs.devices import DTYPES, current_device

W = TypeVar("W", bound=ImageNetworkSettings, covariant=True)
INTERPOLATIONS = ("bilinear", "bicubic")
"""Interpolations by their names in Pillow, both with antialiasing."""
IMAGES_AT_ONCE = 64
"""Batch size, which bounds memory; fixed, so that a range always gives the same features."""


@dataclass(frozen=True)
class Preparation:
    """Preparation of square images: resized by Pillow, cut to the middle, scaled by mean and deviation.

    A grey image gets three equal bands. mean, deviation: of the bands, values being in [0, 1].
    """

    resized: int
    side: int
    mean: Sequence[float]
    deviation: Sequence[float]
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        known = ", ".join(INTERPOLATIONS)
        text = f"images are to be prepared by interpolation {self.interpolation}; known are {known}"
        require(self.interpolation in INTERPOLATIONS, text)
        sides = f"images are to be resized to {self.resized} pixels and cut to {self.side}, which is more"
        require(self.side <= self.resized, sides)

    @property
    def label(self) -> str:
        """Name of the preparation in the labels of encoders."""
        return preparation_label(self.resized, self.side, self.interpolation)

    def __call__(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n 3 {self.side} {self.side}"]:
        resized = torch.from_numpy(self._resize(images.cpu().numpy()))
        planes = resized.to(images.device).permute(0, 3, 1, 2).float() / 255
        # As torchvision and timm cut: half a pixel is rounded to the even number.
        first = round((self.resized - self.side) / 2)
        planes = planes[:, :, first : first + self.side, first : first + self.side].expand(-1, 3, -1, -1)
        mean, deviation = (planes.new_tensor(values).view(1, 3, 1, 1) for values in (self.mean, self.deviation))
        return (planes - mean) / deviation

    def _resize(self, images: UInt8[np.ndarray, "n h w c"]) -> UInt8[np.ndarray, "n s s c"]:
        """Resize images by Pillow, which does not hold up other threads."""
        size, bands = (self.resized, self.resized), images.shape[3]
        filtered = Image.Resampling[self.interpolation.upper()]
        pictures = [Image.fromarray(image[:, :, 0] if bands == 1 else image) for image in images]
        with ThreadPoolExecutor(torch.get_num_threads()) as threads:
            resized = list(threads.map(lambda picture: np.asarray(picture.resize(size, filtered)), pictures))
        return np.stack(resized).reshape(len(images), *size, bands)


class NetworkEncoder(ImageEncoder[W]):
    """Encoder whose features are those of a network, computed in batches on the device of the process."""

    network: Any
    preparation: Preparation

    def __init__(self, settings: W) -> None:
        super().__init__(settings)
        self.device = current_device()

    def prepare_as_stated(self, preparation: Preparation) -> None:
        """Take the preparation that a package states."""
        self.preparation, self.stated_preparation = preparation, preparation.label

    @torch.no_grad()
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        features = []
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = torch.from_numpy(images[start : start + IMAGES_AT_ONCE]).to(self.device)
            prepared = self.prepare(part).to(DTYPES[self.settings.precision])
            with full_precision():
                features.append(self.encode_prepared(prepared).float().cpu())
        return torch.cat(features).numpy()

    def prepare(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n 3 s s"]:
        """Prepare images for the network."""
        return self.preparation(images)

    def encode_prepared(self, planes: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
        """Compute the features of prepared images: by default the network's answer."""
        features: Tensor = self.network(planes)
        return features
