"""Diversity of samples within a class, which drops if a model repeats the same image (mode collapse)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import blocks


class Diversity(Metric):
    """Mean distance between samples of one class, divided by that of an equal number of real images."""

    title = "diversity"
    explanation = (
        "mean distance between samples of one class, divided by that of held-out images;"
        " a substitute for LPIPS within a prompt"
    )
    better = Better.NEAR_ONE
    format = ".2f"
    needs = frozenset({Need.FEATURES, Need.LABELS})
    order = 80

    def compute(self, evaluation: MetricInputs) -> float:
        """Divide the diversity of the samples by that of the real images."""
        samples, real = evaluation.samples, evaluation.real
        return diversity(samples.features, samples.labels) / diversity(real.features, real.labels)


def diversity(features: np.ndarray, labels: np.ndarray) -> float:
    """Compute the mean Euclidean distance between features of two samples of one class, averaged over classes.

    It replaces LPIPS within a prompt (arXiv 2603.06741): the same mean, with other features. Divided by the value of an
    equal number of real images, 1 means as diverse as real images.

    Args:
        features: (N, D) features.
        labels: (N,) classes.

    Raises:
        ValueError: A class has fewer than 2 samples.
    """
    means = []
    for label in np.unique(labels):
        of_class = features[labels == label]
        if len(of_class) < 2:
            raise ValueError(f"class {label}: diversity needs 2 samples of every class")
        total = sum(np.sqrt(distances).sum() for _, distances in blocks(of_class, of_class))
        means.append(total / (len(of_class) * (len(of_class) - 1)))
    return float(np.mean(means))
