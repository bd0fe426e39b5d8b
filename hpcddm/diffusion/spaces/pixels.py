"""Pixels: x is the image itself, its values in [-1, 1]."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hpcddm.config.shapes import Shape
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space


class Settings(SpaceSettings):
    """Variant without settings."""

    bound: ClassVar[float | None] = 1.0

    def shape(self, channels: int, image_size: int) -> Shape:
        return Shape(channels, image_size, image_size)


class Pixels(Space[Settings]):
    """Values 0 ... 255 scaled to [-1, 1]."""

    def to_model(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n c h w"]:
        return to_unit(images)

    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n h w c"]:
        """Round to whole pixel values; those beyond [-1, 1] become black or white."""
        return from_unit(x)


def to_unit(images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n c h w"]:
    """Convert pixels 0 ... 255 to [-1, 1]."""
    return images.permute(0, 3, 1, 2).float().div(127.5).sub(1)


def from_unit(values: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n h w c"]:
    """Convert values in [-1, 1] to pixels 0 ... 255, rounded."""
    scaled = values.add(1).mul(127.5).round().clamp(0, 255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
