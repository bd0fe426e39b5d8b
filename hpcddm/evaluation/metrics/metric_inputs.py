"""Input of every metric: what one evaluator measures of an arm's samples, of held-out and of training images."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from hpcddm.evaluation.metrics.class_distances import class_distances
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.gaussians import Gaussian, frechet_distance, frechet_distance_of_part
from hpcddm.evaluation.metrics.kernels import KernelSums, between_sums, kernel_distance, tenth_counts, within_sums
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES, Need
from hpcddm.evaluation.metrics.neighbours import nearest_by_tenth
from hpcddm.evaluation.metrics.overlap import NeighbourhoodOverlap, RealBalls, merge, overlap
from hpcddm.evaluation.metrics.tenth_rows import TENTHS, tenth_rows, without_rows

T = TypeVar("T")
NETWORK_VALUES = (Need.FEATURES.value, Need.LOGITS.value, Need.TEXT.value)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Measurements of N images by one evaluator; a part that it does not give is None."""

    features: np.ndarray | None = None
    """(N, D) features, float32 or float64."""
    logits: np.ndarray | None = None
    """(N, C) logits of the evaluator's head."""
    agreed: np.ndarray | None = None
    """(N,) bool, True if the classifier predicts the requested class."""
    text: np.ndarray | None = None
    """(N,) cosine of an image and its caption in the evaluator's space."""
    spread: np.ndarray | None = None
    """(C,) mean LPIPS between two images of one condition, by condition."""
    labels: np.ndarray | None = None
    """(N,) int, requested class, or class of the real image."""

    def __post_init__(self) -> None:
        """Raise ValueError for features, logits or cosines that are not finite: comparisons with NaN are figures."""
        for name, part in self._parts():
            if name in NETWORK_VALUES and not np.isfinite(part).all():
                raise ValueError(f"{name} are NaN or infinite")

    @property
    def count(self) -> int:
        """Number of images N; 0 if only the spread is given."""
        return next((len(part) for name, part in self._parts() if name != Need.SPREAD.value), 0)

    def gives(self) -> set[Need]:
        """Return the parts that are given."""
        return {Need(name) for name, _ in self._parts()}

    def without(self, tenth: int) -> "ImageSet":
        """Drop rows [N * tenth // 10, N * (tenth + 1) // 10) of every part; of the spread, conditions."""
        return ImageSet(**{name: without_rows(part, tenth) for name, part in self._parts()})

    def part(self, need: Need) -> np.ndarray:
        """Return a part.

        Raises:
            ValueError: The evaluator does not give it.
        """
        part: np.ndarray | None = getattr(self, need.value)
        if part is None:
            raise ValueError(f"the images lack {need.value}, which this metric needs")
        return part

    @cached_property
    def statistics(self) -> FeatureStatistics:
        """Mean and scatter of the features."""
        return FeatureStatistics.from_features(self.part(Need.FEATURES))

    @cached_property
    def gaussian(self) -> Gaussian:
        """Gaussian fitted to the features."""
        features = self.part(Need.FEATURES)
        if len(features) < features.shape[1]:
            return Gaussian.from_features(features)
        return Gaussian.from_statistics(self.statistics)

    @cached_property
    def gaussians_without(self) -> list[Gaussian]:
        """Gaussians fitted to the features without each tenth."""
        features = self.part(Need.FEATURES)
        if len(without_rows(features, 0)) < features.shape[1]:
            return [Gaussian.from_features(without_rows(features, tenth)) for tenth in range(TENTHS)]
        parts = [FeatureStatistics.from_features(features[rows]) for rows in tenth_rows(len(features))]
        unions = (FeatureStatistics.union(parts[:tenth] + parts[tenth + 1 :]) for tenth in range(TENTHS))
        return [Gaussian.from_statistics(union) for union in unions]

    @cached_property
    def kernel_sums(self) -> np.ndarray:
        """Sums of the kernel within the set, by the tenths of both points, (10, 10)."""
        return within_sums(self.part(Need.FEATURES))

    @cached_property
    def class_distances(self) -> np.ndarray:
        """Mean distance within a class, of all images and without each tenth, (11,)."""
        return class_distances(self.part(Need.FEATURES), self.part(Need.LABELS))

    @cached_property
    def reach(self) -> np.ndarray:
        """Squared distance of every image to its nearest other one in every tenth, (N, 10)."""
        return nearest_by_tenth(self.part(Need.FEATURES), 1)[:, :, 0]

    @cached_property
    def balls(self) -> RealBalls:
        """Balls around the first 10,000 images."""
        return RealBalls.around(self.part(Need.FEATURES)[:NEIGHBOUR_IMAGES])

    def _parts(self) -> list[tuple[str, np.ndarray]]:
        parts = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return [(name, part) for name, part in parts if part is not None]


@dataclass(frozen=True, eq=False)
class MetricInputs:
    """Samples of an arm, held-out images with the same conditions in the same order, and as many training images."""

    samples: ImageSet
    real: ImageSet
    train: ImageSet
    merged_overlap: NeighbourhoodOverlap | None = None
    """Neighbourhoods of all samples and held-out images, if several units have looked for them."""
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    def without(self, tenth: int) -> "MetricInputs":
        """Drop a tenth of all three sets."""
        return MetricInputs(self.samples.without(tenth), self.real.without(tenth), self.train.without(tenth))

    def over_tenths(self, value: Callable[["MetricInputs"], float]) -> np.ndarray:
        """Compute a value without each tenth, (10,); NaN for fewer than ten images, because tenths would be empty."""
        return over_tenths(self.samples.count, lambda tenth: value(self.without(tenth)))

    def once(self, make: Callable[["MetricInputs"], T]) -> T:
        """Return what a function makes of these inputs; it is called once, however often this is asked for."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @cached_property
    def frechet(self) -> float:
        """Frechet distance of samples and held-out images."""
        return frechet_distance(self.samples.gaussian, self.real.gaussian)

    @cached_property
    def frechet_left_out(self) -> np.ndarray:
        """Frechet distances of samples and held-out images without each tenth, (10,)."""
        return frechet_left_out(self.samples, self.real)

    @cached_property
    def kernel_sums(self) -> KernelSums:
        """Sums of the kernel over all pairs."""
        samples, real = self.samples.part(Need.FEATURES), self.real.part(Need.FEATURES)
        between, counts = between_sums(samples, real), (tenth_counts(len(samples)), tenth_counts(len(real)))
        return KernelSums(self.samples.kernel_sums, self.real.kernel_sums, between, *counts)

    @cached_property
    def tenth_kernel_distances(self) -> np.ndarray:
        """Kernel distances of samples and held-out images in each tenth, (10,)."""
        samples, real = self.samples.part(Need.FEATURES), self.real.part(Need.FEATURES)
        pairs = zip(tenth_rows(len(samples)), tenth_rows(len(real)), strict=True)
        return np.array([kernel_distance(samples[own], real[theirs]) for own, theirs in pairs])

    @cached_property
    def overlap(self) -> NeighbourhoodOverlap:
        """Neighbourhoods of the first 10,000 samples and held-out images."""
        return merge([self.real.balls.overlap(self.samples.part(Need.FEATURES)[:NEIGHBOUR_IMAGES])])

    @cached_property
    def overlap_of_all(self) -> NeighbourhoodOverlap:
        """Neighbourhoods of all samples and held-out images."""
        return self.merged_overlap or overlap(self.real.part(Need.FEATURES), self.samples.part(Need.FEATURES))


def over_tenths(count: int, value: Callable[[int], float]) -> np.ndarray:
    """Compute a value without each tenth of some observations.

    Args:
        count: Number of observations.
        value: Computes the value without a tenth, given its number.

    Returns:
        (10,) values; NaN for fewer than ten observations, because tenths would be empty.
    """
    return np.full(TENTHS, np.nan) if count < TENTHS else np.array([value(tenth) for tenth in range(TENTHS)])


def means_left_out(values: np.ndarray) -> np.ndarray:
    """Compute the mean of observations (N,) without each tenth, (10,)."""
    return over_tenths(len(values), lambda tenth: float(without_rows(values, tenth).mean(dtype=np.float64)))


def frechet_left_out(first: ImageSet, second: ImageSet) -> np.ndarray:
    """Compute the Frechet distance of two sets without each tenth of both, (10,)."""
    count = min(first.count, second.count)
    return over_tenths(
        count,
        lambda tenth: frechet_distance_of_part(first.gaussians_without[tenth], second.gaussians_without[tenth]),
    )
