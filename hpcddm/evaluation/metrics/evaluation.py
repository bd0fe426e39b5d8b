"""Input of every metric: measurements of one arm's samples, and of the real images beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import Overlap, overlap
from hpcddm.evaluation.metrics.statistics import Statistics

NO_LABELS = np.zeros(0, dtype=np.int64)
"""Labels of images without classes."""
NOTHING = {"agreed": np.zeros(0, dtype=bool), "features": np.zeros((0, 0))}
NOTHING |= Statistics.from_features(NOTHING["features"]).arrays()
"""Parts that were not stored, by the names of their arrays."""


@dataclass(frozen=True)
class ImageSet:
    """Measurements of N images, samples or real ones; a part that no metric needs is empty."""

    labels: np.ndarray
    """Class asked for, or of the real image: (N,) int; `NO_LABELS` for images without classes."""
    agreed: np.ndarray
    """Whether the classifier names that class: (N,) bool."""
    features: np.ndarray
    """Features of the extractor: (N, D) float."""
    statistics: Statistics
    """Mean and covariance of the features."""

    def arrays(self, needed: set[Need]) -> dict[str, np.ndarray]:
        """Return the parts to be stored but for the labels, which follow from the images' places."""
        features = {"features": self.features} if Need.FEATURES in needed else {}
        agreed = {"agreed": self.agreed} if Need.AGREED in needed else {}
        return features | agreed | (self.statistics.arrays() if Need.STATISTICS in needed else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], labels: np.ndarray) -> "ImageSet":
        """Make a set from stored `arrays`, for instance a group of an HDF5 file, and the images' labels (N,)."""
        parts = {name: arrays[name][()] if name in arrays else nothing for name, nothing in NOTHING.items()}
        return cls(labels, parts["agreed"], parts["features"], Statistics.from_arrays(parts))

    @classmethod
    def merged(cls, parts: Sequence["ImageSet"]) -> "ImageSet":
        """Merge sets in their order, statistics in float64."""
        labels, agreed, features = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "agreed", "features")
        )
        return cls(labels, agreed, features, reduce(Statistics.merge, (part.statistics for part in parts)))


@dataclass(frozen=True)
class Evaluation:
    """Samples of one arm and as many held-out real images, of the same conditions place by place."""

    samples: ImageSet
    real: ImageSet

    @cached_property
    def overlap(self) -> Overlap:
        """Samples and real images that are near each other, computed once for all metrics that count them."""
        return overlap(self.real.features, self.samples.features)
