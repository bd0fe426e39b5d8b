"""Kernel distance as it is published: the mean over random subsets (KID; Binkowski et al., arXiv 1801.01401)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.in_one_pass import InOnePass
from hpcddm.evaluation.metrics.kernels import KernelSums, between_sums, within_sums
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_of_rows

SUBSETS, SIZE, SEED = 100, 1_000, 0
"""Subsets, their size, and the seed that draws them: the same for every arm."""


class KernelDistanceOfSubsets(InOnePass, Metric):
    """Mean kernel distance between subsets of the samples and of the real images."""

    title = "KID of subsets"
    explanation = f"the kernel distance to held-out images, the mean of {SUBSETS} random subsets of {SIZE:,}"
    better = Better.LOWER
    format = ".4f"
    needs = frozenset({Need.FEATURES})
    order = 22
    digits = 3
    smallest = SIZE

    def cases(self, inputs: MetricInputs) -> np.ndarray:
        """Average over the subsets; without a tenth, over what is left of each."""
        rng, found = np.random.default_rng(SEED), []
        sets = [images.part(Need.FEATURES) for images in (inputs.samples, inputs.real)]
        for _ in range(SUBSETS):
            chosen = [rng.choice(len(features), SIZE, replace=False) for features in sets]
            first, second = (features[rows].astype(np.float64) for features, rows in zip(sets, chosen, strict=True))
            tenths = [tenth_of_rows(len(features))[rows] for features, rows in zip(sets, chosen, strict=True)]
            sums = KernelSums(
                within_sums(first, tenths[0]),
                within_sums(second, tenths[1]),
                between_sums(first, second, *tenths),
                *(np.bincount(each, minlength=TENTHS) for each in tenths),
            )
            found.append([sums.distance(without) for without in (None, *range(TENTHS))])
        return np.mean(found, axis=0)

    def setting(self, images: int) -> str:
        """Return the number of subsets and their size."""
        return f"{SUBSETS}x{SIZE}"
