"""Base of the perceptual distances, which are squared distances of features: n images take n runs of a network."""

from abc import abstractmethod

import numpy as np
from jaxtyping import Float32, UInt8

from hpcddm.config.variants import S, Variant


class Perceptual(Variant[S]):
    """Perceptual distance, ready to be used when it is created.

    Creating it raises `UserError` when its weights are missing or other ones.
    """

    @abstractmethod
    def features(self, images: UInt8[np.ndarray, "n h w c"]) -> Float32[np.ndarray, "n d"]:
        """Compute the features of grey or RGB images, each independent of the others; d depends on their size."""

    def distances(self, a: Float32[np.ndarray, "n d"], b: Float32[np.ndarray, "m d"]) -> Float32[np.ndarray, "n m"]:
        """Compute the distances of all pairs of two sets of features: squared Euclidean ones."""
        # Not by products of features: of two images that are nearly alike, nothing but rounding would be left.
        rows = [np.square(b - own).sum(1) for own in a]
        return np.stack(rows) if rows else np.empty((0, len(b)), np.float32)

    def diversity(self, features: Float32[np.ndarray, "n d"]) -> float:
        """Compute the mean distance of two different images of a set; raises ValueError for fewer than 2 images."""
        count = len(features)
        if count < 2:
            raise ValueError("diversity needs 2 images")
        # An image's distance from itself is zero.
        return float(self.distances(features, features).sum(dtype=np.float64) / (count * (count - 1)))
