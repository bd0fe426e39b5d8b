import numpy as np
import pytest

from hpcddm.evaluation.metrics.kernels import ROWS_PER_BLOCK, kernel_distance

RNG = np.random.default_rng(0)


def direct(first, second):
    """The definition, one pair at a time."""

    def kernel(a, b):
        return (a @ b / len(a) + 1) ** 3

    def within(points):
        pairs = [kernel(a, b) for i, a in enumerate(points) for j, b in enumerate(points) if i != j]
        return np.mean(pairs)

    return within(first) + within(second) - 2 * np.mean([kernel(a, b) for a in first for b in second])


def test_equals_the_definition():
    first, second = RNG.standard_normal((30, 5)), RNG.standard_normal((41, 5)) + 0.5
    assert kernel_distance(first, second) == pytest.approx(direct(first, second), rel=1e-11)


def test_blocks_leave_no_seam():
    count = ROWS_PER_BLOCK + 7
    first, second = RNG.standard_normal((count, 3)), RNG.standard_normal((2 * count, 3)) + 0.1
    within = [((x @ x.T / 3 + 1) ** 3)[~np.eye(len(x), dtype=bool)].mean() for x in (first, second)]
    expected = sum(within) - 2 * ((first @ second.T / 3 + 1) ** 3).mean()
    assert kernel_distance(first, second) == pytest.approx(expected, rel=1e-9)


def test_unbiased():
    # With few samples the biased estimate would be about 2 E[k(x, x) - k(x, y)] / N > 0.5 for equal distributions.
    values = [kernel_distance(*RNG.standard_normal((2, 20, 4))) for _ in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / 20
    assert min(values) < 0


def test_float32_features_are_summed_in_float64():
    first, second = (RNG.standard_normal((2, 200, 8)) + 30).astype(np.float32)
    expected = kernel_distance(first.astype(np.float64), second.astype(np.float64))
    assert kernel_distance(first, second) == pytest.approx(expected, rel=1e-12)


def test_needs_two_samples_of_each():
    with pytest.raises(ValueError, match="not 1 and 5"):
        kernel_distance(np.zeros((1, 2)), np.zeros((5, 2)))
