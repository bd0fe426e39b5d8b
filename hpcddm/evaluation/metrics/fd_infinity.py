"""Frechet distance extrapolated to infinitely many images (Chong and Forsyth, arXiv 1911.07023)."""

from collections.abc import Iterator

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.gaussians import Gaussian, frechet_distance_of_part
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows

SIZES, SMALLEST_SIZE, SEED = 15, 5_000, 0
"""Sizes of the fit and the smallest, as published, and the seed of the order in which images join."""


class FrechetInfinity(InOnePass, Metric):
    """FD of samples and real images at 15 sizes, fitted by a line in 1/N; the value is that at 1/N = 0 (sec. 3).

    Unlike in the paper the real images, too, are as many as the samples at each size: their number biases FD in the
    same way, so that the value estimates the distance of the two distributions. Like KID it can be slightly negative.
    With fewer than 10,000 images the smallest size is half of them. The bias is linear in 1/N only where N is several
    times the number of features: the smallest size is at least twice that.
    """

    title = "FD infinity"
    explanation = "the Frechet distance to held-out images, extrapolated to infinitely many samples and images"
    better = Better.LOWER
    format = ".2f"
    needs = frozenset({Need.FEATURES})
    order = 12
    digits = 3
    smallest = 2 * SIZES
    images_per_feature = 4

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Fit the line to all images, then to those outside of each tenth."""
        sizes = _sizes(min(inputs.samples.count, inputs.real.count))
        order = np.random.default_rng(SEED).permutation(sizes[-1])
        fitted = (_gaussians(images.part(Need.FEATURES), order, sizes) for images in (inputs.samples, inputs.real))
        distances, counts = np.empty((2, SIZES, TENTHS + 1))
        for place, pairs in enumerate(zip(*fitted, strict=True)):
            distances[place] = [frechet_distance_of_part(*both) for both in zip(pairs[0], pairs[1], strict=True)]
            counts[place] = [first.count for first in pairs[0]]
        return np.array([np.polyfit(1 / n, y, 1)[1] for n, y in zip(counts.T, distances.T, strict=True)])

    def setting(self, images: int) -> str:
        """Return the number of sizes and the smallest one."""
        return f"{SIZES}x{_sizes(images)[0]}"


def _sizes(images: int) -> np.ndarray:
    return np.linspace(min(SMALLEST_SIZE, images // 2), images, SIZES).astype(int)


def _gaussians(features: np.ndarray, order: np.ndarray, sizes: np.ndarray) -> Iterator[list[Gaussian]]:
    """Fit Gaussians to the first images of an order.

    Args:
        features: (N, D) features.
        order: (N,) rows in the order in which they join.
        sizes: Increasing numbers of images.

    Yields:
        At every size 11 Gaussians: of all images, then without each tenth of the N rows.
    """
    tenths, dimension, start = tenth_of_rows(len(order))[order], features.shape[1], 0
    parts = [FeatureStatistics.from_features(features[:0]) for _ in range(TENTHS)]
    for size in sizes:
        rows = [order[start:size][tenths[start:size] == tenth] for tenth in range(TENTHS)]
        joined = [FeatureStatistics.from_features(features[own]) for own in rows]
        parts, start = [part.merge(new) for part, new in zip(parts, joined, strict=True)], size
        if size > dimension:
            unions = [parts, *(parts[:tenth] + parts[tenth + 1 :] for tenth in range(TENTHS))]
            yield [Gaussian.from_statistics(FeatureStatistics.union(union)) for union in unions]
        else:
            kept = [order[:size], *(order[:size][tenths[:size] != tenth] for tenth in range(TENTHS))]
            yield [Gaussian.from_features(features[own]) for own in kept]
