"""Everything that the report page shows, gathered by the stage report; the page itself reads no files."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Cluster:
    """One cluster and its expert. images: uint8 (N, H, W, C), a sample of its training images."""

    index: int
    size: int
    images: np.ndarray


@dataclass(frozen=True)
class Gallery:
    """Samples of one arm from the noise that all galleries share. images: uint8 (N, H, W, C)."""

    arm: str
    images: np.ndarray


@dataclass(frozen=True)
class Content:
    """The whole report."""

    name: str
    facts: list[tuple[str, str]]
    """Rows of (what, value): images, K, steps, guidance, extractor and its hash, judge, cost."""
    metrics: dict[str, Any]
    """What `metrics.json` holds: {"arms": {arm: {fd, kid, agreement, images, train_flops}}, "floor": {...}, ...}.

    `remark` says in words what `missing_experts` (units' keys) means for all of it.
    """
    clusters: list[Cluster]
    gallery_classes: list[int]
    """The class of each picture in a gallery."""
    galleries: list[Gallery]
    """The monolith, the ensemble's arms, then every expert alone."""
    curves: dict[str, list[tuple[int, float]]]
    """Loss curves by unit: (images seen, mean loss)."""
    noise_levels: list[float]
    router_accuracy: dict[str, list[float]]
    """Accuracy by noise level, one line for each way of asking: 'with class', 'without class'."""
    usage: dict[str, np.ndarray]
    """For every ensemble arm, each expert's share of the samples at each sampling step: (steps, K), rows sum to 1."""
