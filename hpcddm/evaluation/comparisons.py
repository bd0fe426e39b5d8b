"""Figures of all arms by all evaluators, merged for metrics.json: names, intervals, paired differences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcddm.evaluation.metrics import FID, all_metrics, leading, primary
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.tenth_rows import TENTHS
from hpcddm.evaluation.statistics.tenths import difference, interval, verdict

Figures = dict[str, dict[str, Any]]
"""Figures of an arm by the full key: the metric's key, its value, and the values without each tenth; None for a value
that is not finite."""
FID_GRAPH = "inception-2015"
"""Label of the network whose Frechet distance is FID."""
MEAN_RATIO = "fd_ratio@mean"
"""Mean of the ratios over all extractors."""


@dataclass(frozen=True)
class ArmComparison:
    """Content of the file of the stage compare: the figures by one evaluator."""

    arms: dict[str, Figures]
    floor: Figures
    images: int
    dimension: int | None
    """Number of features; None for an evaluator that gives none."""


def summarise(comparisons: Mapping[str, ArmComparison]) -> dict[str, Any]:
    """Merge comparisons into entries of metrics.json.

    Args:
        comparisons: Comparisons by the evaluator's label; the first evaluator that gives a metric has its short key.

    Returns:
        `arms` and `floor`: values by key, short and full. `intervals`: 95 % intervals by arm and full key.
        `differences`: by arm and full key, the paired difference to the arm `baseline`, its interval and the verdict.
        `leading_metric`: key of the metric that comes first. `few_images`: number of features of the extractors for
        whose Frechet distances the images are too few, by label.
    """
    first = next(iter(comparisons.values()))
    arms = {arm: _merged(one.arms[arm] for one in comparisons.values()) for arm in first.arms}
    floor = _merged(one.floor for one in comparisons.values())
    baseline = next(iter(arms))
    images = max(one.images for one in comparisons.values())
    dimension = next((one.dimension for one in comparisons.values() if one.dimension), None)
    return {
        "arms": {arm: values_by_key(figures) | {"images": images} for arm, figures in arms.items()},
        "floor": values_by_key(floor) | {"images": images},
        "intervals": {arm: _intervals(figures) for arm, figures in (arms | {"floor": floor}).items()},
        "baseline": baseline,
        "differences": {arm: _differences(own, arms[baseline]) for arm, own in arms.items() if arm != baseline},
        "leading_metric": leading(images, dimension).key if dimension else all_metrics()[0].key,
        "few_images": {
            label: one.dimension
            for label, one in comparisons.items()
            if one.dimension and leading(one.images, one.dimension) is not primary()
        },
    }


def values_by_key(figures: Figures) -> dict[str, float]:
    """Return the values of an arm: by the short keys, which are those of the first evaluator, and by the full ones.

    NaN means a value that is not finite.
    """
    full = {key: np.nan if figure["value"] is None else figure["value"] for key, figure in figures.items()}
    short: dict[str, float] = {}
    for key, figure in figures.items():
        short.setdefault(figure["metric"], full[key])
    values = short | full
    if f"fd@{FID_GRAPH}" in figures:
        values[FID] = values[f"fd@{FID_GRAPH}"]
    ratios = [full[key] for key, figure in figures.items() if figure["metric"] == "fd_ratio"]
    return values | ({MEAN_RATIO: float(np.mean(ratios))} if len(ratios) > 1 else {})


def _merged(parts: Iterator[Figures]) -> Figures:
    return {key: figure for part in parts for key, figure in part.items()}


def _intervals(figures: Figures) -> dict[str, list[float | None]]:
    shares = {metric.key for metric in all_metrics() if metric.is_share}
    return {key: _ends(one, one["metric"] in shares) for key, one in figures.items()}


def _ends(figure: dict[str, Any], is_share: bool) -> list[float | None]:
    """Return the ends of the interval of a figure; that of a share is in [0, 1]."""
    if figure["value"] is None:
        return [None, None]
    estimate = interval(figure["value"], _left_out(figure))
    ends = [estimate.low, estimate.high]
    return [float(np.clip(end, 0, 1)) if is_share and end is not None else end for end in ends]


def _left_out(figure: dict[str, Any]) -> np.ndarray:
    """Return the values without each tenth, (10,); NaN where there are too few images."""
    return np.array(figure["left_out"] or [np.nan] * TENTHS)


def _differences(own: Figures, baseline: Figures) -> dict[str, dict[str, Any]]:
    metrics = {metric.key: metric for metric in all_metrics()}
    shared = {key: figure for key, figure in own.items() if key in baseline}
    return {key: _difference(metrics[figure["metric"]], figure, baseline[key]) for key, figure in shared.items()}


def _difference(metric: Metric, own: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    if own["value"] is None or baseline["value"] is None:
        return {"value": None, "low": None, "high": None, "verdict": ""}
    estimate = difference(own["value"], _left_out(own), baseline["value"], _left_out(baseline))
    found = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return found | {"verdict": verdict(metric, estimate) if metric.is_ranked else ""}


def unavailable(comparisons: Sequence[ArmComparison], has_classes: bool) -> dict[str, str]:
    """Return the metrics of the main table that no evaluator gives, by key, and why."""
    given = {figure["metric"] for one in comparisons for figure in one.floor.values()}
    reason = "compares features, and no extractor is set"
    if not has_classes:
        reason = "compares classes, and these images have none"
    return {metric.key: reason for metric in all_metrics() if metric.is_column and metric.key not in given}
