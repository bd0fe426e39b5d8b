"""Invented features for load tests: a mixture of cubes, in which a sample's place is a hash of its number.

No picture is read; see the source of the same name.
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Float32, UInt64

from hpcddm.config.data_shapes import ImageShape
from hpcddm.config.image_encoders import SampleEncoderSettings
from hpcddm.config.schema import Positive
from hpcddm.data.columns import Numbers
from hpcddm.data.reader import Reader
from hpcddm.encoders.image.base import SampleEncoder

EDGE = 0.25
"""Edge of the cubes, whose centres lie in a cube of edge 1."""


class Settings(SampleEncoderSettings):
    """Number of features, and of cubes."""

    uses_gpu: ClassVar[bool] = False
    reads_images: ClassVar[bool] = False

    size: Positive = 32
    cubes: Positive = 64

    def dimensions(self, data: ImageShape) -> int:
        return self.size


class InventedFeatures(SampleEncoder[Settings]):
    """Points in cubes at random places, the cubes at random places themselves."""

    def features(self, reader: Reader, numbers: Numbers) -> Float32[np.ndarray, "n d"]:
        rows = np.asarray(numbers, dtype=np.uint64)
        cubes = _hashed(rows) % np.uint64(self.settings.cubes)
        return self._uniform(cubes, stream=1) + np.float32(EDGE) * self._uniform(rows, stream=2)

    def _uniform(self, numbers: UInt64[np.ndarray, " n"], stream: int) -> Float32[np.ndarray, "n d"]:
        """Return values in [0, 1), which are a function of number, stream and dimension."""
        counters = (numbers[:, None] << np.uint64(16)) + np.arange(self.settings.size, dtype=np.uint64)
        return (_hashed(counters + (np.uint64(stream) << np.uint64(60))) >> np.uint64(40)).astype(np.float32) / 2**24


def _hashed(values: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Mix the bits of numbers as SplitMix64 does (Steele, Lea and Flood 2014, "Fast splittable generators")."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
