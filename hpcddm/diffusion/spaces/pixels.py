"""Pixels: x is the image itself, with values in [-1, 1]."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from hpcddm.config.data_shapes import Shape
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space
from hpcddm.errors import require


class PixelSpaceSettings(SpaceSettings):
    """Variant without settings."""

    bound: ClassVar[float | None] = 1.0

    def shape(self, channels: int, image_size: int) -> Shape:
        """Return the shape (C, H, W) of the images."""
        return Shape(channels, image_size, image_size)


class PixelSpace(Space[PixelSpaceSettings]):
    """Pixel values 0, ..., 255 scaled to [-1, 1]."""

    def to_model(self, images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n c h w"]:
        """Scale pixels to [-1, 1]."""
        return pixels_to_values(images)

    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n h w c"]:
        """Round to whole pixel values; x outside [-1, 1] is clipped."""
        return values_to_pixels(x)


def pixels_to_values(images: UInt8[Tensor, "n h w c"]) -> Float32[Tensor, "n c h w"]:
    """Convert uint8 pixels (N, H, W, C) to float32 values in [-1, 1], (N, C, H, W)."""
    return images.permute(0, 3, 1, 2).float().div(127.5).sub(1)


def values_to_pixels(values: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n h w c"]:
    """Convert values in [-1, 1], (N, C, H, W), to rounded uint8 pixels, (N, H, W, C), on the CPU.

    Raises:
        UserError: A value is NaN or infinite, which would become a black or white pixel.
    """
    require(
        bool(values.isfinite().all()),
        "images with values that are NaN or infinite cannot be shown or measured; look at the weights and the precision"
        " of the network that made them",
    )
    scaled = values.add(1).mul(127.5).round().clamp(0, 255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
