"""Content of the report page, gathered by the stage report; the page itself reads no files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcddm.evaluation.report import image_grids
from hpcddm.evaluation.report.cluster_facts import PartitionFacts
from hpcddm.evaluation.report.concept_facts import ConceptFacts
from hpcddm.evaluation.report.concept_images import ConceptImages
from hpcddm.sampling.decisions import Decisions

CLUSTER_PIXELS = 64
"""Largest side of a cluster's images: a page with sixteen experts' pictures should open quickly."""


@dataclass(frozen=True)
class ClusterContent:
    """One cluster and its expert. images: uint8 (N, H, W, C), some of its training images by kind."""

    index: int
    size: int
    images: dict[str, np.ndarray]

    @classmethod
    def read(
        cls, index: int, size: int, shown: Mapping[str, Sequence[int]], read: Callable[[Sequence[int]], np.ndarray]
    ) -> "ClusterContent":
        """Read the images that are shown by their numbers; large ones are shrunk at once, kind by kind."""
        images = {kind: image_grids.shrink(read(numbers), CLUSTER_PIXELS) for kind, numbers in shown.items()}
        return cls(index, size, images)


@dataclass(frozen=True)
class DenoiserContent:
    """Training of one denoiser: monolith, student or expert."""

    unit: str
    model: str
    parameters: int
    objective: str
    precision: str
    images: int
    """Number of images seen in training."""
    flops: int
    """Operations of its training, a student's teachers included."""
    passes: float | None
    """Times that it saw each of its own samples on average; None where these are not counted."""
    rank_hours: float
    """Hours of its last attempt times its ranks, each with a GPU where there are any."""


@dataclass(frozen=True)
class RouterContent:
    """Measurements of the router on held-out images, by noise level (0 is the image, 1 is noise)."""

    noise_levels: list[float]
    accuracy: dict[str, list[float]]
    """Accuracy by kind of condition: 'with condition', 'without condition'."""
    calibration: dict[str, list[float]]
    """Expected calibration error before and after temperature scaling; may be empty."""
    surprise: dict[str, list[float]]
    """Mean negative log-likelihood of the right cluster in nats, by the same keys as `calibration`."""


@dataclass(frozen=True)
class ReportContent:
    """Content of the whole report."""

    name: str
    summary: list[tuple[str, str]]
    """Rows of (title, value): images, K, steps, guidance, extractor and its hash, classifier, cost."""
    metrics: dict[str, Any]
    """Content of `metrics.json`: {"arms": {arm: measures}, "floor": measures, "diagnostics": {arm: {...}}, ...}.

    `remark` explains the effect of `missing_experts` (units' keys) on the metrics.
    """
    denoisers: list[DenoiserContent]
    clusters: list[ClusterContent]
    facts: PartitionFacts | None
    """Measures of the clusters; None if the stage cluster_report is not complete."""
    asked_for: str
    """Kind of condition of the samples: 'class', 'caption', or '' for networks without a condition."""
    gallery_texts: list[str]
    """Requested class or caption of each picture in a gallery."""
    galleries: dict[str, np.ndarray]
    """Samples, uint8 (N, H, W, C), of the dense models, the ensemble's arms, then every expert alone, by name.

    All start from the same noise.
    """
    curves: dict[str, list[tuple[int, float]]]
    """Loss curves by unit: (images seen, mean loss)."""
    router: RouterContent | None
    usage: dict[str, np.ndarray]
    """For every ensemble arm, each expert's share of the samples at each sampling step: (steps, K), rows sum to 1."""
    decisions: Decisions | None = None
    """Decisions of the first strategy that asks the router; None without such a strategy."""
    concepts: tuple[ConceptFacts, ConceptImages] | None = None
    """Facts about the concepts, and pictures of those that are shown.

    None for a run that counts none, or whose stage concept_analysis is not complete.
    """
