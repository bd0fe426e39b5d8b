"""Kernel distance as it is published: the mean over random subsets (KID; Binkowski et al., arXiv 1801.01401)."""

from collections.abc import Iterator

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.kernels import KernelSums, between_sums, grouped_sums, within_sums
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows

SUBSETS, SIZE, SEED = 100, 1_000, 0
"""Subsets, their size, and the seed that draws them: the same for every arm."""


class KernelDistanceOfSubsets(InOnePass, Metric):
    """Mean kernel distance between subsets of the samples and of the real images."""

    title = "KID of subsets"
    explanation = f"the kernel distance to held-out images, the mean over {SUBSETS} random subsets of {SIZE:,}"
    better = Better.LOWER
    format = ".4f"
    needs = frozenset({Need.FEATURES})
    order = 22
    digits = 3
    smallest = SIZE

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the subsets; without a tenth, over what is left of each."""
        rng = np.random.default_rng(SEED)
        sets = [images.part(Need.FEATURES) for images in (inputs.samples, inputs.real)]
        subsets = [tuple(rng.choice(len(each), SIZE, replace=False) for each in sets) for _ in range(SUBSETS)]
        most, dimension = max(map(len, sets)), sets[0].shape[1]
        # Subsets of few images share their pairs.
        is_shared = most**2 * (dimension + SUBSETS * TENTHS) < SUBSETS * SIZE**2 * dimension
        samples, real = sets
        each = (_sums(samples, real, own, theirs) for own, theirs in subsets)
        sums = _sums_of_all_pairs(samples, real, subsets) if is_shared else each
        return np.mean([[one.distance(without) for without in (None, *range(TENTHS))] for one in sums], axis=0)

    def setting(self, images: int) -> str:
        """Return the number of subsets and their size."""
        return f"{SUBSETS}x{SIZE}"


def _sums(samples: np.ndarray, real: np.ndarray, own: np.ndarray, theirs: np.ndarray) -> KernelSums:
    """Sum the kernel over the pairs of a subset; own, theirs: (SIZE,) rows of samples and real images."""
    first, second = samples[own].astype(np.float64), real[theirs].astype(np.float64)
    tenths = tenth_of_rows(len(samples))[own], tenth_of_rows(len(real))[theirs]
    counts = (np.bincount(each, minlength=TENTHS) for each in tenths)
    within = within_sums(first, tenths[0]), within_sums(second, tenths[1])
    return KernelSums(*within, between_sums(first, second, *tenths), *counts)


def _sums_of_all_pairs(
    samples: np.ndarray, real: np.ndarray, subsets: list[tuple[np.ndarray, ...]]
) -> Iterator[KernelSums]:
    """Yield the same for every subset, with the kernel of every pair computed once."""
    own = _groups(len(samples), [chosen[0] for chosen in subsets])
    theirs = _groups(len(real), [chosen[1] for chosen in subsets])
    first, second = _within(samples, own), _within(real, theirs)
    between = grouped_sums(samples, real, own, theirs)
    for number in range(len(subsets)):
        groups = slice(number * TENTHS, (number + 1) * TENTHS)
        counts = (each[:, groups].sum(0) for each in (own, theirs))
        yield KernelSums(*(sums[groups, groups] for sums in (first, second, between)), *counts)


def _within(features: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Sum the kernel over pairs of distinct points of two groups, (G, G); groups: (N, G) 0 or 1."""
    diagonal = (np.square(features, dtype=np.float64).sum(1) / features.shape[1] + 1) ** 3
    return grouped_sums(features, features, groups, groups) - (groups * diagonal[:, None]).T @ groups


def _groups(count: int, subsets: list[np.ndarray]) -> np.ndarray:
    """Return a matrix (count, subsets x 10) that has a 1 where a point is in a tenth of a subset."""
    groups, tenths = np.zeros((count, len(subsets) * TENTHS)), tenth_of_rows(count)
    for number, rows in enumerate(subsets):
        groups[rows, number * TENTHS + tenths[rows]] = 1
    return groups
