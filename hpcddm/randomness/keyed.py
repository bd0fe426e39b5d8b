"""Random numbers as pure functions of (seed, stream, global index).

A stream is a name for one use of randomness ("noise", "time", "drop class"), so that no two uses share numbers. A
sample's numbers depend on its index alone. They do not change with batch size, world size, resume or retry.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt64
from torch import Tensor

from hpcddm.randomness.streams import DROPOUT, LATENT, MIRROR, NOISE, TIME, TURN

ROUNDS = 8
MIN_BITS = 6
"""Smaller domains have too few keyed permutations; cycle walking skips numbers beyond the size."""


class Bijection:
    """Permutation of 0 ... size - 1 that is a function of a key, computed number by number.

    A Feistel network on the smallest power of two that holds the size, whose round function mixes 64 bits (SplitMix64);
    a number that it maps outside is mapped again until it is inside (cycle walking: Black and Rogaway, Ciphers with
    Arbitrary Finite Domains, 2002).
    """

    def __init__(self, key: str, size: int) -> None:
        self.size = size
        bits = max((size - 1).bit_length(), MIN_BITS)
        self._left, self._right = np.uint64(bits // 2), np.uint64(bits - bits // 2)
        stream = hashlib.shake_256(key.encode()).digest(8 * ROUNDS)
        self._keys = np.frombuffer(stream, dtype="<u8")

    def __call__(self, numbers: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Map numbers, each in 0 ... size - 1."""
        mapped = self._permuted(numbers.astype(np.uint64))
        while (outside := mapped >= self.size).any():
            mapped[outside] = self._permuted(mapped[outside])
        return mapped.astype(np.int64)

    def _permuted(self, numbers: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
        """Permute the whole power of two; the two parts change places, and widths, in every round."""
        left, right = self._left, self._right
        high, low = numbers >> right, numbers & _mask(right)
        for key in self._keys:
            high, low = low, high ^ (_mixed(low + key) >> (np.uint64(64) - left))
            left, right = right, left
        return (high << right) | low


def _mask(bits: np.uint64) -> np.uint64:
    return (np.uint64(1) << bits) - np.uint64(1)


def _mixed(numbers: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """Mix 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def gaussian(seed: int, stream: str, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
    """Draw standard normal numbers.

    Args:
        seed: Seed of the experiment.
        stream: Name of the stream.
        indices: N global indices; row n of the result is a function of `indices[n]`.
        shape: Shape of the numbers of one index.

    Returns:
        Numbers, (N, *shape), float32.
    """
    numbers = np.empty((len(indices), *shape), dtype=np.float32)
    source = _SampleSource(seed, stream)
    for row, index in zip(numbers, indices, strict=True):
        source.at(index).standard_normal(out=row, dtype=np.float32)
    return torch.from_numpy(numbers)


def uniform(seed: int, stream: str, indices: Sequence[int]) -> Float32[Tensor, " n"]:
    """Draw uniform numbers in [0, 1).

    Args:
        seed: Seed of the experiment.
        stream: Name of the stream.
        indices: N global indices; entry n of the result is a function of `indices[n]`.

    Returns:
        Numbers, (N,), float32.
    """
    source = _SampleSource(seed, stream)
    numbers = [source.at(index).random(dtype=np.float32) for index in indices]
    return torch.tensor(numbers, dtype=torch.float32)


def random_subset(seed: int, stream: str, size: int, count: int) -> Int64[np.ndarray, " n"]:
    """Choose distinct numbers from 0 ... size - 1 at random.

    Args:
        seed: Seed of the experiment.
        stream: Name of the stream.
        size: Number of candidates.
        count: Number of choices; all candidates are chosen if there are fewer.

    Returns:
        Chosen numbers in random order; with a larger `count` the result begins with the same numbers.

    Examples:
        >>> small, large = (random_subset(seed=0, stream="example", size=1000, count=count) for count in (3, 5))
        >>> np.array_equal(large[:3], small)
        True
    """
    return Bijection(f"{seed}/{stream}", size)(np.arange(min(count, size)))


def is_in_random_subset(
    seed: int, stream: str, size: int, count: int, numbers: Int64[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Return which numbers belong to a random subset of 0 ... size - 1; a larger subset contains the smaller ones.

    Args:
        seed: Seed of the experiment.
        stream: Name of the stream.
        size: Number of candidates.
        count: Size of the subset.
        numbers: Candidates to test, (N,).

    Returns:
        Mask, (N,).
    """
    return Bijection(f"{seed}/{stream}", size)(numbers) < count


@dataclass(frozen=True)
class RandomDraws:
    """Random numbers of one training; indices count its samples in the order in which it visits them.

    Args:
        seed: Seed of the experiment.
        stream: Name of the training; two trainings with the same stream and seed draw the same numbers.

    Examples:
        >>> draws = RandomDraws(seed=0, stream="train/expert-0")
        >>> noise = draws.noise(range(4), (3, 8, 8))
        >>> torch.equal(draws.noise([2], (3, 8, 8))[0], noise[2])
        True
    """

    seed: int
    stream: str

    def noise(self, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw standard normal noise, (N, *shape)."""
        return gaussian(self.seed, f"{self.stream}/{NOISE}", indices, shape)

    def latent_noise(self, indices: Sequence[int], shape: tuple[int, ...]) -> Float32[Tensor, "n ..."]:
        """Draw the standard normal numbers, (N, *shape), with which latents are sampled from their distributions."""
        return gaussian(self.seed, f"{self.stream}/{LATENT}", indices, shape)

    def uniform(self, indices: Sequence[int], part: str) -> Float32[Tensor, " n"]:
        """Draw uniform numbers in [0, 1) for one use; other uses draw other numbers.

        Args:
            indices: N indices of samples in the order of training.
            part: Name of this use in the stream, such as "time".

        Returns:
            Numbers, (N,), float32.
        """
        return uniform(self.seed, f"{self.stream}/{part}", indices)

    def times(self, indices: Sequence[int]) -> Float32[Tensor, " n"]:
        """Draw uniform times in [0, 1), (N,)."""
        return self.uniform(indices, TIME)

    def dropout_mask(self, indices: Sequence[int], probability: float) -> Bool[Tensor, " n"]:
        """Draw which conditions are dropped (arXiv 2207.12598, alg. 1).

        Args:
            indices: N indices of samples in the order of training.
            probability: Probability that a condition is dropped.

        Returns:
            Mask, (N,).
        """
        return self.uniform(indices, DROPOUT) < probability

    def shifts(self, indices: Sequence[int], part: str, max_shift: int) -> Int64[Tensor, " n"]:
        """Draw shifts along one axis.

        Args:
            indices: N indices of samples in the order of training.
            part: Name of this use in the stream, such as "down".
            max_shift: Largest shift in pixels.

        Returns:
            Whole numbers from -max_shift to max_shift, (N,).
        """
        return self.uniform(indices, part).mul(2 * max_shift + 1).long() - max_shift

    def mirror_mask(self, indices: Sequence[int]) -> Bool[Tensor, " n"]:
        """Draw which images are mirrored, each with probability 1/2."""
        return self.uniform(indices, MIRROR) < 0.5

    def rotations(self, indices: Sequence[int], count: int) -> Int64[Tensor, " n"]:
        """Draw rotations as numbers of equal steps.

        Args:
            indices: N indices of samples in the order of training.
            count: Number of steps in a full turn.

        Returns:
            Whole numbers from 0 to count - 1, (N,).
        """
        return self.uniform(indices, TURN).mul(count).long()


class _SampleSource:
    """Generator that can jump to the start of any sample's numbers.

    The index is the second word of Philox's 256-bit counter, so every sample has 2^64 blocks of its own.
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
    """Hash seed and stream to a 128-bit Philox key; Python's hash() differs between processes."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:16], "little")
