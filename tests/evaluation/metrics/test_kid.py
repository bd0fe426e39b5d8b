import numpy as np
import pytest

from hpcddm.evaluation.metrics.kernels import ROWS_PER_BLOCK, kernel_distance
from tests.evaluation.metrics import test_equality as definitions

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("counts", [(30, 41), (ROWS_PER_BLOCK + 7, 2 * ROWS_PER_BLOCK + 14)], ids=["one", "blocks"])
def test_equals_the_definition_and_blocks_leave_no_seam(counts):
    first, second = (RNG.standard_normal((count, 5)) + 0.1 * count / counts[0] for count in counts)
    assert kernel_distance(first, second) == pytest.approx(definitions.kernel_distance(first, second), rel=1e-9)


def test_float32_features_are_summed_in_float64():
    first, second = (RNG.standard_normal((2, 200, 8)) + 30).astype(np.float32)
    expected = kernel_distance(first.astype(np.float64), second.astype(np.float64))
    assert kernel_distance(first, second) == pytest.approx(expected, rel=1e-12)


def test_needs_two_samples_of_each():
    with pytest.raises(ValueError, match="not 1 and 5"):
        kernel_distance(np.zeros((1, 2)), np.zeros((5, 2)))
