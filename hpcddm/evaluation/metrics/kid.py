"""Kernel distance between two sets of features (KID; Binkowski et al., arXiv 1801.01401)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs, means_left_out, over_tenths
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.tenth_rows import TENTHS

WHOLE = 10_000
"""Most images whose pairs are all compared; of more, only those within a tenth."""


class KernelDistance(Metric):
    """Kernel distance between samples and real images."""

    title = "KID"
    explanation = "the kernel distance to held-out images, which does not depend on their number"
    better = Better.LOWER
    format = ".4f"
    needs = frozenset({Need.FEATURES})
    order = 20
    is_column = True
    digits = 3
    is_headline = True

    def compute(self, inputs: MetricInputs) -> float:
        """Compare all pairs of up to 10,000 images; of more, average over ten disjoint tenths."""
        if inputs.samples.count > WHOLE:
            return float(inputs.tenth_kernel_distances.mean())
        return inputs.kernel_sums.distance()

    def left_out(self, inputs: MetricInputs) -> np.ndarray:
        """Leave out rows and columns of the sums of all pairs, or a tenth's own distance."""
        if inputs.samples.count > WHOLE:
            return means_left_out(inputs.tenth_kernel_distances)
        return over_tenths(inputs.samples.count, inputs.kernel_sums.distance)

    def setting(self, images: int) -> str:
        """Return the number of tenths and their size, where not all pairs are compared."""
        return f"{TENTHS}x{images // TENTHS}" if images > WHOLE else ""
