"""Latents by a fixed transform: the cosine coefficients of every patch of an image, scaled to about unit variance.

An image of C channels becomes C p^2 maps of 1 / p of its side, one for each pair of frequencies of the orthonormal DCT
of its p x p patches (Ahmed, Natarajan and Rao, IEEE Trans. Comput. C-23, 1974). Nothing is learned and nothing is lost,
so that whole runs in latents can be tried without an autoencoder.
"""

import math
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from pydantic import Field
from torch import Tensor

from hpcddm.config.schema import Fraction, Positive
from hpcddm.config.shapes import ImageShape, Shape
from hpcddm.config.spaces import SpaceSettings
from hpcddm.diffusion.spaces.base import Space
from hpcddm.diffusion.spaces.pixels import from_unit, to_unit
from hpcddm.runs.layout import Locate


class Settings(SpaceSettings):
    """Side `patch` of the patches, and statistics of the images, their values in [-1, 1], that fix the scales.

    A coefficient is divided by the standard deviation that it has where values have the standard deviation `deviation`
    and two of them, d rows and e columns apart, the correlation `correlation`^(d + e). Statistics of the data at hand
    give unit variance as far as that holds: 0.7 and 0.85 are those of the quickstart, whose coefficients of 2 x 2
    patches then have standard deviations from 0.8 to 1.3; the defaults are those of small photographs.
    """

    patch: Positive = 2
    deviation: Annotated[float, Field(gt=0)] = 0.5
    correlation: Fraction = 0.85

    def shape(self, channels: int, image_size: int) -> Shape:
        side = image_size // self.patch
        return Shape(channels * self.patch**2, side, side)

    def check(self, experiment: Any) -> None:
        """Raise ValueError unless the patches tile the images."""
        if experiment.data.image_size % self.patch:
            raise ValueError(f"patch {self.patch} does not divide image_size {experiment.data.image_size}")


class Latents(Space[Settings]):
    """Coefficients in the order of the image's channels, then vertical, then horizontal frequencies."""

    def __init__(self, settings: Settings, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings, data, locate)
        basis, scales = cosines(settings.patch), deviations(settings)
        self._forward, self._backward = (basis / scales[:, None]).float(), (basis.T * scales).float()

    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float32[Tensor, "n c h w"]:
        patch, values = self.settings.patch, to_unit(images)
        # Frequencies come first: of rows, then of columns before them.
        rows = _mixed(self._forward, values.unflatten(2, (-1, patch)).permute(3, 0, 1, 2, 4))
        both = _mixed(self._forward, rows.unflatten(4, (-1, patch)).permute(5, 0, 1, 2, 3, 4))
        return both.permute(2, 3, 1, 0, 4, 5).flatten(1, 3)

    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Round to whole pixel values; those beyond black and white become these."""
        patch = self.settings.patch
        both = x.float().unflatten(1, (-1, patch, patch)).permute(3, 2, 0, 1, 4, 5)
        rows = _mixed(self._backward, both).permute(1, 2, 3, 4, 5, 0).flatten(4)
        return from_unit(_mixed(self._backward, rows).permute(1, 2, 3, 0, 4).flatten(2, 3))


def cosines(size: int) -> Float64[Tensor, "{size} {size}"]:
    """Compute the orthonormal DCT-II: a row for each frequency."""
    frequencies, places = torch.arange(size, dtype=torch.float64)[:, None], torch.arange(size, dtype=torch.float64)
    basis = math.sqrt(2 / size) * torch.cos(math.pi * frequencies * (places + 0.5) / size)
    basis[0] /= math.sqrt(2)
    return basis


def deviations(settings: Settings) -> Float64[Tensor, " {settings.patch}"]:
    """Compute a factor for each frequency; a coefficient's standard deviation is the product of its two."""
    basis, places = cosines(settings.patch), torch.arange(settings.patch, dtype=torch.float64)
    correlations = settings.correlation ** (places[:, None] - places).abs()
    return (settings.deviation * (basis @ correlations @ basis.T).diagonal()).sqrt()


def _mixed(weights: Float32[Tensor, "p p"], parts: Float32[Tensor, "p ..."]) -> Float32[Tensor, "p ..."]:
    """Compute sum_i weights[:, i] parts[i], in this order: the last bits of a matrix product may differ by batch."""
    columns = weights.to(parts.device).T.reshape(len(weights), -1, *[1] * (parts.dim() - 1))
    mixed = columns[0] * parts[0]
    for column, part in zip(columns[1:], parts[1:], strict=True):
        mixed = mixed + column * part
    return mixed
