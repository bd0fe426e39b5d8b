"""Bases of the encoders that map samples, mostly their images alone, to features."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float32, UInt8

from hpcddm.config.variants import S, Variant
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.encoders.gpu import require_gpu


class SampleEncoder(Variant[S]):
    """Encoder of samples to features for the clustering, ready for use.

    Args:
        settings: Settings of the encoder.

    Raises:
        UserError: The weights are missing or not those expected, a package is not installed, or the encoder needs a GPU
            and none exists.
    """

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        require_gpu(settings)

    @abstractmethod
    def features(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n d"]:
        """Compute the features of some samples, each independent of the others.

        Args:
            reader: Reader of the samples.
            numbers: (N,) numbers of samples.

        Returns:
            Features, (N, D), where D is `dimensions` of the settings.
        """


class ImageEncoder(SampleEncoder[S]):
    """Encoder that needs only images, which need not belong to samples."""

    def features(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n d"]:
        """Compute the features of the images of some samples, (N, D)."""
        return self.encode(reader.images(numbers))

    @abstractmethod
    def encode(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of images, each independent of the others.

        Args:
            images: (N, H, W, C), uint8.

        Returns:
            Features, (N, D), where D is `dimensions` of the settings.
        """
