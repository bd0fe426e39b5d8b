"""Input of every metric: measurements of one arm's samples and of the matching real images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.metrics.neighbours import NeighbourhoodOverlap, overlap

NO_LABELS = np.zeros(0, dtype=np.int64)
"""Labels of images without classes."""
EMPTY_ARRAYS = {"agreed": np.zeros(0, dtype=bool), "features": np.zeros((0, 0))}
EMPTY_ARRAYS |= FeatureStatistics.from_features(EMPTY_ARRAYS["features"]).arrays()
"""Empty arrays for parts that were not stored, by name."""


@dataclass(frozen=True)
class ImageSet:
    """Measurements of N images, samples or real; parts that no metric needs are empty."""

    labels: np.ndarray
    """Requested class, or class of the real image: (N,) int; `NO_LABELS` for images without classes."""
    agreed: np.ndarray
    """True if the classifier predicts that class: (N,) bool."""
    features: np.ndarray
    """Features of the extractor: (N, D) float."""
    statistics: FeatureStatistics
    """Mean and covariance of the features."""

    def arrays(self, needed: set[Need]) -> dict[str, np.ndarray]:
        """Return the parts to store. Labels are not among them, because they follow from the numbers of the images.

        Args:
            needed: Parts that the metrics need.
        """
        features = {"features": self.features} if Need.FEATURES in needed else {}
        agreed = {"agreed": self.agreed} if Need.AGREED in needed else {}
        return features | agreed | (self.statistics.arrays() if Need.STATISTICS in needed else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], labels: np.ndarray) -> "ImageSet":
        """Create a set from stored arrays.

        Args:
            arrays: Arrays by name, such as a group of an HDF5 file.
            labels: (N,) labels of the images.
        """
        parts = {name: arrays[name][()] if name in arrays else empty for name, empty in EMPTY_ARRAYS.items()}
        return cls(labels, parts["agreed"], parts["features"], FeatureStatistics.from_arrays(parts))

    @classmethod
    def merged(cls, parts: Sequence["ImageSet"]) -> "ImageSet":
        """Merge sets in their order; statistics are merged in float64."""
        labels, agreed, features = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "agreed", "features")
        )
        return cls(labels, agreed, features, reduce(FeatureStatistics.merge, (part.statistics for part in parts)))


@dataclass(frozen=True)
class MetricInputs:
    """Samples of one arm and an equal number of held-out real images with the same conditions, in the same order."""

    samples: ImageSet
    real: ImageSet

    @cached_property
    def overlap(self) -> NeighbourhoodOverlap:
        """Neighbourhood overlap of samples and real images, computed once for all metrics that use it."""
        return overlap(self.real.features, self.samples.features)
