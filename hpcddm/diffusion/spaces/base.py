"""Base of the spaces of x: the conversion of images to x and back."""

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from hpcddm.config import variants
from hpcddm.config.data_shapes import ImageShape, NetworkData
from hpcddm.config.spaces import SpaceSettings
from hpcddm.config.variants import Variant
from hpcddm.runs.run_dir import Locate

P = TypeVar("P", bound=SpaceSettings, covariant=True)


class Space(Variant[P]):
    """Space of x, the values that denoisers model; a variant is created as `cls(settings, data, locate)`.

    The x of an image depends only on that image, up to rounding in the network of the space, if it has one. The
    attribute `shape` is the shape (C, H, W) of x.

    Args:
        settings: Settings of the variant.
        data: Shape of the images.
        locate: Function that locates the outputs of the run's units; some spaces read learned or measured values there.
    """

    def __init__(self, settings: P, data: ImageShape, locate: Locate | None = None):
        super().__init__(settings)
        self.shape = settings.shape(data.channels, data.image_size)

    @abstractmethod
    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float[Tensor, "n c h w"]:
        """Convert images to x on the device of the images.

        Args:
            images: (N, H, W, C) uint8 pixels, at the size of the images.

        Returns:
            (N, C, H, W) x, at the size of the space.
        """

    def from_batch(self, values: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n c h w"]:
        """Convert the images or latents of a batch to x on their device.

        Args:
            values: (N, ...) latents if the settings' `reads_latents` is true, else uint8 pixels.

        Returns:
            (N, C, H, W) x.
        """
        return self.to_model(values)

    @abstractmethod
    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Convert x, such as the end of a trajectory, to the nearest images.

        Args:
            x: (N, C, H, W) values of any size.

        Returns:
            (N, H, W, C) uint8 pixels.
        """

    def finish(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Clamp the end of a trajectory, or an estimate of x0, to the values that x of images can have."""
        bound = self.settings.bound
        return x if bound is None else x.clamp(-bound, bound)


class LatentSpace(Space[P]):
    """Space of latents, whose moments the run stores as a column."""

    @abstractmethod
    def moments(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float[Tensor, "n m c h w"]:
        """Encode images to the moments of their latents.

        Args:
            images: (N, H, W, C) uint8 pixels.

        Returns:
            (N, M, C, H, W): mean and log-variance (M = 2), or the latents alone (M = 1).
        """


def create_space(data: NetworkData, locate: Locate | None = None) -> Space[SpaceSettings]:
    """Create the space of an experiment.

    Args:
        data: Properties of the data, with the settings of the space.
        locate: Function that locates the outputs of a run's units.
    """
    return variants.create(Space, data.space, data, locate)
