"""Keyed bijections: every number once, as random as a shuffled list, and no memory."""

import tracemalloc

import numpy as np
import pytest

from hpcddm.randomness.keyed import Bijection

LARGE = [2**20 - 1, 2**20, 2**20 + 1, 999_983]


@pytest.mark.parametrize("size", [*range(1, 130), 255, 256, 257, 1000, 4095, 4097, 9_999, 10_000, *LARGE])
def test_every_number_comes_once(size):
    mapped = Bijection("key", size)(np.arange(size))
    assert mapped.dtype == np.int64 and np.array_equal(np.sort(mapped), np.arange(size))


@pytest.mark.parametrize("size", [400_000_000, 2**40 + 12345, 2**62])
def test_no_two_of_many_numbers_meet_in_a_size_that_no_memory_holds(size):
    generator = np.random.default_rng(size)
    numbers = np.unique(generator.integers(0, size, 200_000))
    tracemalloc.start()
    bijection = Bijection("key", size)
    mapped = np.concatenate([bijection(part) for part in np.array_split(numbers, 100)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(np.unique(mapped)) == len(numbers) and mapped.min() >= 0 and mapped.max() < size
    assert peak < 20_000_000
    assert abs(np.corrcoef(numbers, mapped)[0, 1]) < 0.02 and abs(mapped.mean() / size - 0.5) < 0.01


def test_it_is_a_function_of_the_key_and_of_nothing_else():
    numbers = np.arange(1000)
    whole = Bijection("key", 1000)(numbers)
    assert np.array_equal(Bijection("key", 1000)(numbers[[7, 900, 7]]), whole[[7, 900, 7]])
    assert Bijection("key", 1000)(numbers[:5]).tolist() == [50, 91, 562, 975, 558]
    same = np.count_nonzero(Bijection("other", 1000)(numbers) == whole)
    assert same < 10
