"""Diversity of samples within a class, which falls where a model repeats the same image (mode collapse)."""

import numpy as np

from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.evaluation import Evaluation
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import blocks


class Diversity(Metric):
    """Mean distance of samples of one class, divided by what as many real images give."""

    title = "diversity"
    explanation = (
        "how far samples of one class are from each other, as a multiple of the same for held-out images;"
        " it stands in for LPIPS within a prompt"
    )
    better = Better.NEAR_ONE
    format = ".2f"
    needs = frozenset({Need.FEATURES, Need.LABELS})
    order = 80

    def compute(self, evaluation: Evaluation) -> float:
        samples, real = evaluation.samples, evaluation.real
        return diversity(samples.features, samples.labels) / diversity(real.features, real.labels)


def diversity(features: np.ndarray, labels: np.ndarray) -> float:
    """Compute the mean Euclidean distance between features of two samples of one class, averaged over classes.

    It stands in for LPIPS within a prompt, which arXiv 2603.06741 reports: the same mean, in other features. Divided by
    what as many real images give, 1 is as diverse as real ones.
    features: (N, D); labels: (N,). Raises ValueError when a class has fewer than 2 samples.
    """
    means = []
    for label in np.unique(labels):
        of_class = features[labels == label]
        if len(of_class) < 2:
            raise ValueError(f"class {label}: diversity needs 2 samples of every class")
        total = sum(np.sqrt(distances).sum() for _, distances in blocks(of_class, of_class))
        means.append(total / (len(of_class) * (len(of_class) - 1)))
    return float(np.mean(means))
