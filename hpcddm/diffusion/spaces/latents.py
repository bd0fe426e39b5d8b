"""Latents by a fixed transform: the cosine coefficients of every patch of an image, scaled to about unit variance.

An image of C channels becomes C p^2 maps of 1 / p of its side, one for each pair of frequencies of the orthonormal DCT
of its p x p patches (Ahmed, Natarajan and Rao, IEEE Trans. Comput. C-23, 1974). The transform is invertible and has no
learned parts, so you can try whole runs in latents without an autoencoder.
"""

import math
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from pydantic import Field
from torch import Tensor

from hpcddm.config.data_shapes import ImageShape, Shape
from hpcddm.config.schema import Fraction, Positive
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space
from hpcddm.diffusion.spaces.pixels import pixels_to_values, values_to_pixels
from hpcddm.runs.run_dir import Locate


class LatentsSettings(SpaceSettings):
    """Side `patch` of the patches, and the image statistics that determine the scales, for values in [-1, 1].

    Each coefficient is divided by its standard deviation under this model: values have the standard deviation
    `deviation`, and two values d rows and e columns apart have the correlation `correlation`^(d + e). With the
    statistics of the data at hand, x has about unit variance. The defaults fit small photographs. The quickstart uses
    0.7 and 0.85, which give coefficients of 2 x 2 patches standard deviations from 0.8 to 1.3.
    """

    patch: Positive = 2
    deviation: Annotated[float, Field(gt=0)] = 0.5
    correlation: Fraction = 0.85

    def shape(self, channels: int, image_size: int) -> Shape:
        """Return the shape (C p^2, H / p, W / p) of x."""
        side = image_size // self.patch
        return Shape(channels * self.patch**2, side, side)

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless the patches tile the images."""
        if experiment.data.image_size % self.patch:
            raise ValueError(f"patch {self.patch} does not divide image_size {experiment.data.image_size}")


class Latents(Space[LatentsSettings]):
    """Coefficients ordered by the image's channel, then vertical frequency, then horizontal frequency."""

    def __init__(self, settings: LatentsSettings, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings, data, locate)
        basis, scales = cosines(settings.patch), deviations(settings)
        self._forward, self._backward = (basis / scales[:, None]).float(), (basis.T * scales).float()

    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n c h w"]:
        """Compute the scaled cosine coefficients of images."""
        patch, values = self.settings.patch, pixels_to_values(images)
        # Frequencies come first: of rows, then of columns before them.
        rows = _weighted_sum(self._forward, values.unflatten(2, (-1, patch)).permute(3, 0, 1, 2, 4))
        both = _weighted_sum(self._forward, rows.unflatten(4, (-1, patch)).permute(5, 0, 1, 2, 3, 4))
        return both.permute(2, 3, 1, 0, 4, 5).flatten(1, 3)

    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Invert the transform, round to whole pixel values, and clip them to [0, 255]."""
        patch = self.settings.patch
        both = x.float().unflatten(1, (-1, patch, patch)).permute(3, 2, 0, 1, 4, 5)
        rows = _weighted_sum(self._backward, both).permute(1, 2, 3, 4, 5, 0).flatten(4)
        return values_to_pixels(_weighted_sum(self._backward, rows).permute(1, 2, 3, 0, 4).flatten(2, 3))


def cosines(size: int) -> Float64[Tensor, "{size} {size}"]:
    """Compute the matrix of the orthonormal DCT-II, (size, size), with one row per frequency."""
    frequencies, places = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size, dtype=torch.float64)
    basis = math.sqrt(2 / size) * torch.cos(math.pi * frequencies * (places + 0.5) / size)
    basis[0] /= math.sqrt(2)
    return basis


def deviations(settings: LatentsSettings) -> Float64[Tensor, " {settings.patch}"]:
    """Compute a factor per frequency, (patch,); a coefficient's standard deviation is the product of two factors."""
    basis, places = cosines(settings.patch), torch.arange(settings.patch, dtype=torch.float64)
    correlations = settings.correlation ** (places[:, None] - places).abs()
    return (settings.deviation * (basis @ correlations @ basis.T).diagonal()).sqrt()


def _weighted_sum(weights: Float32[Tensor, "p p"], parts: Float32[Tensor, "p ..."]) -> Float32[Tensor, "p ..."]:
    """Compute sum_i weights[:, i] parts[i], in this order: the last bits of a matrix product may differ by batch."""
    columns = weights.to(parts.device).T.reshape(len(weights), -1, *[1] * (parts.dim() - 1))
    mixed = columns[0] * parts[0]
    for column, part in zip(columns[1:], parts[1:], strict=True):
        mixed = mixed + column * part
    return mixed
