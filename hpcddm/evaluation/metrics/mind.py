"""MIND: distance of sorted projections on random directions (arXiv 2605.06797)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows

IMAGES, DIRECTIONS, SEED = 5_000, 1_000, 0
"""Most images of a set, directions, and the seed of these: every arm is projected on the same ones."""
DIRECTIONS_AT_ONCE = 100


class Mind(InOnePass, Metric):
    """3 D times the mean squared difference of sorted projections, over directions and ranks."""

    title = "MIND"
    explanation = (
        "the mean squared difference between sorted projections of samples and of held-out images on"
        f" {DIRECTIONS:,} random directions, times three times the number of features"
    )
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 24
    digits = 3

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Sort the projections once; without a tenth the others keep their order."""
        count = min(inputs.samples.count, inputs.real.count, IMAGES)
        features = [images.part(Need.FEATURES)[:count].astype(np.float64) for images in (inputs.samples, inputs.real)]
        dimension, tenths = features[0].shape[1], tenth_of_rows(count)
        directions = np.random.default_rng(SEED).standard_normal((DIRECTIONS, dimension))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        sums = np.zeros(TENTHS + 1)
        for start in range(0, DIRECTIONS, DIRECTIONS_AT_ONCE):
            chosen = directions[start : start + DIRECTIONS_AT_ONCE]
            sums += _squares(chosen @ features[0].T, chosen @ features[1].T, tenths)
        return 3 * dimension * sums / DIRECTIONS

    def setting(self, images: int) -> str:
        """Return the number of images that are compared."""
        return str(min(images, IMAGES))


def _squares(first: np.ndarray, second: np.ndarray, tenths: np.ndarray) -> np.ndarray:
    """Sum the mean squared differences of sorted projections over directions.

    Args:
        first: (directions, N) projections of one set.
        second: (directions, N) those of the other set.
        tenths: (N,) tenth of each image.

    Returns:
        (11,) sums for all images, then without each tenth.
    """
    orders = [projections.argsort(1) for projections in (first, second)]
    values = [np.take_along_axis(*pair, axis=1) for pair in zip((first, second), orders, strict=True)]
    of_values = [tenths[order] for order in orders]
    sums = [np.square(values[0] - values[1]).mean(1).sum()]
    for tenth in range(TENTHS):
        left = [each[of != tenth].reshape(len(each), -1) for each, of in zip(values, of_values, strict=True)]
        sums.append(np.square(left[0] - left[1]).mean(1).sum())
    return np.array(sums)
