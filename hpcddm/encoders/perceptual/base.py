"""Base of the perceptual distances: squared distances of features, so N images require N evaluations of a network."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float32, UInt8

from hpcddm.config.variants import S, Variant
from hpcddm.errors import require


class Perceptual(Variant[S]):
    """Perceptual distance, ready for use.

    Args:
        settings: Settings of the distance.

    Raises:
        UserError: The weights are missing or not those expected.
    """

    @abstractmethod
    def features(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of images, each independent of the others.

        Args:
            images: Grey or RGB images, (N, H, W, C), uint8.

        Returns:
            Features, (N, D), where D depends on the size of the images.
        """

    def distances(self, a: Float32[np.ndarray, "n d"], b: Float32[np.ndarray, "m d"]) -> Float32[np.ndarray, "n m"]:
        """Compute the squared Euclidean distances of all pairs of features.

        Args:
            a: (N, D).
            b: (M, D).

        Returns:
            Distances, (N, M).
        """
        # Not by products of features: of two images that are nearly alike, nothing but rounding would be left.
        rows = [np.square(b - row).sum(1) for row in a]
        return np.stack(rows) if rows else np.empty((0, len(b)), np.float32)

    def diversity(self, features: Float32[np.ndarray, "n d"]) -> float:
        """Compute the mean distance between two different images of a set.

        Args:
            features: (N, D).

        Raises:
            ValueError: There are fewer than 2 images.
        """
        count = len(features)
        require(count >= 2, "diversity needs 2 images", ValueError)
        # An image's distance from itself is zero.
        return float(self.distances(features, features).sum(dtype=np.float64) / (count * (count - 1)))
