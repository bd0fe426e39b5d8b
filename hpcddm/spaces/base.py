"""Base of the spaces: where x lives, the way into it from images, and the way back."""

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from hpcddm import plugins
from hpcddm.data.settings import NetworkData, Shape
from hpcddm.plugins import Variant
from hpcddm.spaces.settings import SpaceSettings

P = TypeVar("P", bound=SpaceSettings, covariant=True)


class Space(Variant[P]):
    """A space of x, created as `cls(settings, shape)`; shape: (C, H, W) of x.

    x of an image depends on that image alone, and on no other one of its batch.
    """

    def __init__(self, settings: P, shape: Shape):
        super().__init__(settings)
        self.shape = shape

    @abstractmethod
    def to_model(self, images: UInt8[Tensor, "n image_h image_w image_c"]) -> Float[Tensor, "n c h w"]:
        """Convert images to x, on their device."""

    @abstractmethod
    def to_images(self, x: Float[Tensor, "n c h w"]) -> UInt8[np.ndarray, "n image_h image_w image_c"]:
        """Convert x, which need not be that of any image, to the nearest images."""

    def finish(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Bring the end of a trajectory, or an estimate of x0, to where x of images can be."""
        bound = self.settings.bound
        return x if bound is None else x.clamp(-bound, bound)


def space_of(data: NetworkData) -> Space[SpaceSettings]:
    """Create the space of an experiment's `data`."""
    return plugins.create(Space, data.space, data.x_shape)
