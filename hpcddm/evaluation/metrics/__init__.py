"""Metrics of a model's samples: every file with a subclass of `base.Metric` is one; the others are their helpers.

Page, tables and plots iterate over `all_metrics`, so that a new file is shown everywhere.
"""

from functools import cache

from hpcddm.config import variants
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.need import Need

FID = "fid"
"""Key that is kept for the Frechet distance in the features of one network, the Inception graph of 2015."""


@cache
def all_metrics() -> tuple[Metric, ...]:
    """Load the metric of every file, in the order of the columns."""
    files = [file for file in variants.list_files("evaluation/metrics") if file.stem != "__init__"]
    modules = [variants.import_file("evaluation/metrics", file.stem) for file in files]
    metrics = [metric() for module in modules for metric in variants.classes_defined_in(module, Metric)]
    return tuple(sorted(metrics, key=lambda metric: (metric.order, metric.key)))


def primary() -> Metric:
    """Return the first metric, which leads unless there are too few images for it."""
    return all_metrics()[0]


def headlines() -> list[Metric]:
    """List the metrics for places with room for few."""
    return [metric for metric in all_metrics() if metric.is_headline]


def leading(images: int, dimension: int) -> Metric:
    """Return the metric that ranks arms: FD, or KID where FD has too few images.

    Args:
        images: Number of images of each set.
        dimension: Number of features D; below 2 D images a covariance is a poor estimate.
    """
    by_key = {metric.key: metric for metric in all_metrics()}
    return by_key["fd" if images >= 2 * dimension else "kid"]


def metrics_for(gives: set[Need], images: int, dimension: int = 0) -> list[Metric]:
    """List the metrics that can be computed.

    Args:
        gives: Parts that the evaluator gives.
        images: Number of images of each set.
        dimension: Number of features; 0 for an evaluator that gives none.
    """
    given = [metric for metric in all_metrics() if metric.needs <= gives]
    return [one for one in given if images >= max(one.smallest, one.images_per_feature * dimension)]


def columns() -> list[Metric]:
    """List the metrics of the tables."""
    return [metric for metric in all_metrics() if metric.is_column]


def led_by(key: str, metrics: list[Metric]) -> list[Metric]:
    """Put the metric with this key first; the others keep their order."""
    return sorted(metrics, key=lambda metric: metric.key != key)


def short_key(full_key: str) -> str:
    """Return the key of the metric of a figure.

    Examples:
        >>> short_key("recall-10000@own"), short_key("fd@dinov2-l14-224-bicubic-aa")
        ('recall', 'fd')
    """
    return full_key.split("@")[0].split("-")[0]
