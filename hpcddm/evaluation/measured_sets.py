"""Measurements of sets of images by evaluators, and comparisons of several sets with one reference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from hpcddm.errors import require
from hpcddm.evaluation.comparisons import ArmComparison, Figures
from hpcddm.evaluation.evaluators import ImageEvaluator
from hpcddm.evaluation.figures import compute_figures, figure
from hpcddm.evaluation.image_sets import FeatureMoments, ImageFiles, blocks, with_channels
from hpcddm.evaluation.metrics import metrics_for, primary
from hpcddm.evaluation.metrics.gaussians import Gaussian, frechet_distance, frechet_distance_of_part
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs, over_tenths
from hpcddm.evaluation.metrics.need import NEIGHBOUR_IMAGES
from hpcddm.evaluation.metrics.tenth_rows import TENTHS

MEASURED_AT_ONCE = 256
Advance = Callable[[int], object]
"""Function that receives the number of images that were measured since the last call."""


def measure(
    images: ImageFiles, rows: np.ndarray, channels: int, evaluator: ImageEvaluator, advance: Advance
) -> ImageSet:
    """Measure some images of a set.

    Args:
        images: The set.
        rows: (N,) ascending numbers.
        channels: Channels of the images that are measured; 3 repeats grey ones.
        evaluator: Network that measures them.
        advance: Function that receives the number of images of each block.
    """
    parts, own = [], np.array([]) if images.labels is None else images.labels
    for part, pixels in _read_ahead(images, rows):
        labels = own[part] if len(own) else own
        parts.append(evaluator.measure(with_channels(pixels, channels), labels, images.captions(part)))
        advance(len(part))
    merged = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return replace(ImageSet(**merged), labels=own[rows] if len(own) else None)


def _read_ahead(images: ImageFiles, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers and pixels of each block; a thread reads the next one while this one is measured."""
    with ThreadPoolExecutor(1) as thread:
        parts = list(blocks(rows, images.boundaries, MEASURED_AT_ONCE))
        after = thread.submit(images.read, parts[0])
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            pixels = after.result()
            if following is not None:
                after = thread.submit(images.read, following)
            yield part, pixels


def compare(label: str, samples: Mapping[str, ImageSet], real: ImageSet, train: ImageSet | None) -> ArmComparison:
    """Compare sets of samples with as many real images.

    Args:
        label: Label of the evaluator.
        samples: What it measured of each set, by name.
        real: What it measured of the reference.
        train: What it measured of training images; without these, the floor is missing, and so are metrics that read
            them.
    """
    images, features = real.count, real.features
    dimension = 0 if features is None else features.shape[1]

    def figures_of(own: ImageSet, is_floor: bool) -> Figures:
        possible = metrics_for(own.gives() & real.gives(), images, dimension)
        known = [one for one in possible if not one.reads_training or (train is not None and not is_floor)]
        # As in a run, all images count beside the first ones where these are fewer.
        merged = MetricInputs(own, real, train or real)
        if images > NEIGHBOUR_IMAGES and features is not None:
            merged = replace(merged, merged_overlap=merged.overlap_of_all)
        return compute_figures(merged, known, label, images)

    floor = figures_of(train, True) if train is not None else Figures()
    arms = {name: figures_of(own, False) for name, own in samples.items()}
    return ArmComparison(arms, floor, images, dimension or None)


def compare_with_moments(label: str, samples: Mapping[str, ImageSet], moments: FeatureMoments) -> ArmComparison:
    """Compute the Frechet distance to published statistics, with intervals for the randomness of the samples alone."""
    real = Gaussian(moments.count or len(moments.mean) + 1, moments.mean, covariance=moments.covariance)
    arms, metric = {}, primary()
    for name, own in samples.items():
        dimension = own.gaussian.mean.shape[0]
        text = (
            f"{moments.name}: has {len(moments.mean)} features, {label} gives {dimension}; name the extractor it is of"
        )
        require(dimension == len(moments.mean), text)
        parts = own.gaussians_without if own.count >= TENTHS else []
        left_out = over_tenths(own.count, partial(_distance_of_part, parts, real))
        arms[name] = {f"fd@{label}": figure(metric, frechet_distance(own.gaussian, real), left_out)}
    return ArmComparison(arms, Figures(), next(iter(samples.values())).count, len(moments.mean))


def _distance_of_part(parts: Sequence[Gaussian], real: Gaussian, tenth: int) -> float:
    return frechet_distance_of_part(parts[tenth], real)


def require_equal_counts(sets: Sequence[ImageFiles]) -> None:
    """Raise `UserError` for sets of different sizes: the Frechet distance depends on the number of images."""
    counts = {one.name: one.count for one in sets}
    sizes = ", ".join(f"{name} has {count:,}" for name, count in counts.items())
    require(
        len({*counts.values()}) == 1,
        f"{sizes} images: their Frechet distances cannot be compared; add --images {min(counts.values())}",
    )
