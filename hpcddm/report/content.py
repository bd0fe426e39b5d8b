"""Everything that the report page shows, gathered by the stage report; the page itself reads no files."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Cluster:
    """One cluster and its expert. images: uint8 (N, H, W, C), a random sample of its training images."""

    index: int
    size: int
    images: np.ndarray


@dataclass(frozen=True)
class Gallery:
    """Samples of one arm from the noise that all galleries share. images: uint8 (N, H, W, C)."""

    arm: str
    images: np.ndarray


@dataclass(frozen=True)
class Denoiser:
    """How a denoiser that is there was made: monolith, student or expert."""

    unit: str
    model: str
    parameters: int
    objective: str
    precision: str
    images: int
    """That it saw in training."""
    flops: int
    """Of its training, a student's teachers included."""


@dataclass(frozen=True)
class Router:
    """What was measured of the router on held-out images, by noise level (0 is the image, 1 is noise)."""

    noise_levels: list[float]
    accuracy: dict[str, list[float]]
    """One line for each way of asking: 'with class', 'without class'."""
    calibration: dict[str, list[float]]
    """The expected calibration error, one line before and one after temperature scaling; may be empty."""
    surprise: dict[str, list[float]]
    """The mean negative log-likelihood of the right cluster in nats, the same lines."""


@dataclass(frozen=True)
class Content:
    """The whole report."""

    name: str
    summary: list[tuple[str, str]]
    """Rows of (what, value): images, K, steps, guidance, extractor and its hash, classifier, cost."""
    metrics: dict[str, Any]
    """What `metrics.json` holds: {"arms": {arm: measures}, "floor": measures, "diagnostics": {arm: {...}}, ...}.

    `remark` says in words what `missing_experts` (units' keys) means for all of it.
    """
    denoisers: list[Denoiser]
    clusters: list[Cluster]
    gallery_classes: list[str]
    """The class of each picture in a gallery, by its name."""
    galleries: list[Gallery]
    """The dense models, the ensemble's arms, then every expert alone."""
    curves: dict[str, list[tuple[int, float]]]
    """Loss curves by unit: (images seen, mean loss)."""
    router: Router | None
    usage: dict[str, np.ndarray]
    """For every ensemble arm, each expert's share of the samples at each sampling step: (steps, K), rows sum to 1."""
