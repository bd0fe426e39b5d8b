"""Base of the spaces: where x lives, the way into it from images, and the way back."""

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.shapes import ImageShape, NetworkData
from hpcddm.config.spaces import SpaceSettings
from hpcddm.config.variants import Variant
from hpcddm.runs.layout import Locate

P = TypeVar("P", bound=SpaceSettings, covariant=True)


class Space(Variant[P]):
    """A space of x, created as `cls(settings, data, locate)`; `shape` is the shape (C, H, W) of x.

    data: shape of the images; locate: finds the outputs of the run's units, of which some spaces read what was learned
    or measured. x of an image depends on that image alone, up to the rounding of a network where the space has one.
    """

    def __init__(self, settings: P, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings)
        self.shape = settings.shape(data.channels, data.image_size)

    @abstractmethod
    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float[Tensor, "n c h w"]:
        """Convert images to x, on their device."""

    def of_batch(self, values: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n c h w"]:
        """Convert what batches hold of images, as `reads_latents` of the settings says, to x on their device."""
        return self.to_model(values)

    @abstractmethod
    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Convert x, which need not be that of any image, to the nearest images."""

    def finish(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Bring the end of a trajectory, or an estimate of x0, to where x of images can be."""
        bound = self.settings.bound
        return x if bound is None else x.clamp(-bound, bound)


class LatentSpace(Space[P]):
    """A space of latents, whose moments the run keeps as a column."""

    @abstractmethod
    def moments(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float[Tensor, "n m c h w"]:
        """Encode images: mean and log-variance of their latents, or the latents alone."""


def space_of(data: NetworkData, locate: Locate | None = None) -> Space[SpaceSettings]:
    """Create the space of an experiment's `data`; locate: finds the outputs of a run's units."""
    return variants.create(Space, data.space, data, locate)
