"""Bases of the encoders of samples, most of them of images alone, to features."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float32, UInt8

from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.encoders.gpu import require_gpu


class SampleEncoder(Variant[S]):
    """Encoder of samples to the features by which they are clustered, ready to be used when it is created.

    Creating it raises `UserError` when its weights are missing or other ones, a package is not installed, or it needs a
    GPU and there is none.
    """

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        require_gpu(settings)

    @abstractmethod
    def features(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n d"]:
        """Compute the features of some samples, each independent of the others; d is the settings' `dimensions`."""


class ImageEncoder(SampleEncoder[S]):
    """Encoder of images alone, which need not be those of samples."""

    def features(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n d"]:
        return self.encode(reader.images(numbers))

    @abstractmethod
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of images, each independent of the others; d is the settings' `dimensions`."""
