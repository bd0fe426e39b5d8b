"""Keyed bijections of 0 ... size - 1: random permutations that take no memory, whatever the size."""

import hashlib

import numpy as np
from jaxtyping import Int64, UInt64

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
