"""Random numbers as pure functions of (seed, stream, global index).

A stream is a name for one use of randomness ("noise", "time", "drop class"), so that no two uses share
numbers. Because a sample's numbers depend on its index alone, batch size, world size, resume and retry change nothing.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from hpcddm.data.bijection import Bijection


def gaussian(seed: int, stream: str, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
    """Draw standard normal numbers, (N, *shape), row n belonging to `indices[n]`."""
    numbers = np.empty((len(indices), *shape), dtype=np.float32)
    source = _SampleSource(seed, stream)
    for row, index in zip(numbers, indices, strict=True):
        source.at(index).standard_normal(out=row, dtype=np.float32)
    return torch.from_numpy(numbers)


def uniform(seed: int, stream: str, indices: Sequence[int]) -> Float32[Tensor, " n"]:
    """Draw uniform numbers in [0, 1), entry n belonging to `indices[n]`."""
    source = _SampleSource(seed, stream)
    numbers = [source.at(index).random(dtype=np.float32) for index in indices]
    return torch.tensor(numbers, dtype=torch.float32)


def chosen(seed: int, stream: str, size: int, count: int) -> Int64[np.ndarray, " n"]:
    """Choose `count` of the numbers 0 ... size - 1 at random, or all where there are fewer, in random order."""
    return Bijection(f"{seed}/{stream}", size)(np.arange(min(count, size)))


def are_chosen(
    seed: int, stream: str, size: int, count: int, numbers: Int64[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Tell of some of the numbers 0 ... size - 1 whether they are among `count` of them that are chosen at random.

    Those of a larger count are these and more.
    """
    return Bijection(f"{seed}/{stream}", size)(numbers) < count


@dataclass(frozen=True)
class Draws:
    """Random numbers of one training; its samples are numbered in the order in which they are seen.

    stream: name of the training; two trainings with one stream and seed see the same noise.
    """

    seed: int
    stream: str

    def noise(self, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw standard normal noise, (N, *shape)."""
        return gaussian(self.seed, f"{self.stream}/noise", indices, shape)

    def latent_noise(self, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw the standard normal numbers, (N, *shape), with which latents are drawn from their distributions."""
        return gaussian(self.seed, f"{self.stream}/latent", indices, shape)

    def uniform(self, indices: Sequence[int], use: str) -> Float32[Tensor, " n"]:
        """Draw uniform numbers in [0, 1) for one use, which shares them with no other."""
        return uniform(self.seed, f"{self.stream}/{use}", indices)

    def times(self, indices: Sequence[int]) -> Float32[Tensor, " n"]:
        """Draw uniform times in [0, 1)."""
        return self.uniform(indices, "time")

    def dropped(self, indices: Sequence[int], probability: float) -> Bool[Tensor, " n"]:
        """Draw which conditions are dropped, each with a probability (arXiv 2207.12598, alg. 1)."""
        return self.uniform(indices, "dropout") < probability

    def shifts(self, indices: Sequence[int], axis: str, most: int) -> Int64[Tensor, " n"]:
        """Draw shifts along an axis, whole numbers from -most to most."""
        return self.uniform(indices, axis).mul(2 * most + 1).long() - most

    def mirrored(self, indices: Sequence[int]) -> Bool[Tensor, " n"]:
        """Draw which images are mirrored, each with probability 1/2."""
        return self.uniform(indices, "mirror") < 0.5

    def turns(self, indices: Sequence[int], count: int) -> Int64[Tensor, " n"]:
        """Draw by which of `count` equal steps of a full turn images are turned."""
        return self.uniform(indices, "turn").mul(count).long()


class _SampleSource:
    """Generator that jumps to the start of any sample's numbers.

    The index is the second word of Philox's 256-bit counter, so every sample owns 2^64 blocks.
    """

    def __init__(self, seed: int, stream: str):
        self._bits = np.random.Philox(key=_key(seed, stream))
        self._generator = np.random.Generator(self._bits)
        self._start = self._bits.state

    def at(self, index: int) -> np.random.Generator:
        # Setting the state is several times faster than building a new bit generator per sample.
        self._start["state"]["counter"][1] = index
        self._bits.state = self._start
        return self._generator


@cache
def _key(seed: int, stream: str) -> int:
    """Hash seed and stream to a 128-bit Philox key; Python's own hash() differs from process to process."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:16], "little")
