"""Figures of one set of images by one evaluator: the same for the arms of a run and for anybody's samples."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpcddm.evaluation.comparisons import Figures
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.evaluation.metrics.metric_inputs import MetricInputs
from hpcddm.evaluation.metrics.of_neighbours import OfNeighbours


def compute_figures(
    inputs: MetricInputs,
    metrics: list[Metric],
    label: str,
    images: int,
    advance: Callable[[int], object] = lambda done: None,
) -> Figures:
    """Compute metrics, each with its values without every tenth of the images.

    Args:
        inputs: Measurements of samples and real images.
        metrics: Metrics that these measurements allow.
        label: Label of the evaluator, which the keys of the figures carry.
        images: Number of images of each set.
        advance: Function that receives the number of finished metrics before each metric.
    """
    figures = Figures()
    for number, metric in enumerate(metrics):
        advance(number)
        figures[metric.full_key(label, images)] = figure(metric, metric.compute(inputs), metric.left_out(inputs))
        if isinstance(metric, OfNeighbours) and inputs.merged_overlap is not None:
            value, *left_out = metric.read(inputs.merged_overlap)
            figures[f"{metric.key}-{images}@{label}"] = figure(metric, value, np.array(left_out))
    return figures


def figure(metric: Metric, value: float, left_out: np.ndarray) -> dict[str, Any]:
    """Return a figure as files have it: None for what is not finite."""
    values = left_out.tolist() if np.isfinite(left_out).all() else None
    return {"metric": metric.key, "value": float(value) if np.isfinite(value) else None, "left_out": values}
