"""Bases of the encoders that map samples, mostly their images alone, to features."""

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, UInt8

from hpcddm.config.schema import VariantSettings
from hpcddm.config.variants import Variant
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.encoders.gpu import require_gpu
from hpcddm.errors import UserError

S = TypeVar("S", bound=VariantSettings, covariant=True)


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

    stated_preparation = ""
    """Label of the preparation of images that a package states; '' for one that is written here."""

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

    def encode_with_logits(
        self, images: UInt8[np.ndarray, "n h w c"]
    ) -> tuple[Float32[np.ndarray, "n d"], Float32[np.ndarray, "n k"]]:
        """Compute the features of images and their logits, from which an inception score is computed.

        Args:
            images: (N, H, W, C), uint8.

        Returns:
            Features, (N, D), and logits, (N, number of classes).

        Raises:
            UserError: The network does not classify images: `has_head` of its settings is False.
        """
        features = self.encode(images)
        return features, self.logits(features)

    def logits(self, features: Float32[np.ndarray, "n d"]) -> Float32[np.ndarray, "n k"]:
        """Compute the logits of features, (N, number of classes); the errors are those of `encode_with_logits`."""
        raise UserError(f"encoder {self.settings.name}: its network does not classify images, so it has no logits")

    def text_features(self, texts: list[str]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of texts, in the space of the features of images.

        Args:
            texts: N texts.

        Returns:
            Features, (N, D), not normalised.

        Raises:
            UserError: The network does not read texts: `has_text` of its settings is False.
        """
        raise UserError(f"encoder {self.settings.name}: its network does not read texts")
