"""Ruler of images of one concept: the tagger's scores, distances to real images, and diversity."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from hpcddm.config.concepts import TaggerSettings
from hpcddm.evaluation.concepts.scores import Score
from hpcddm.evaluation.concepts.taggers.base import Tagger
from hpcddm.evaluation.metrics.kernels import kernel_distance
from hpcddm.evaluation.metrics.neighbours import Points
from hpcddm.evaluation.metrics.overlap import DENSITY_NEIGHBOURS, overlap

Images = UInt8[np.ndarray, "n h w c"]
MIN_REAL_IMAGES = 50
"""Real images of a concept from which on distances to them are measured."""


@dataclass(frozen=True)
class NearestTrainingImages:
    """Training images, or some of them, among which the nearest is looked for.

    features: of these images; encode: computes those of others.
    """

    features: Float32[np.ndarray, "m d"]
    encode: Callable[[Images], Float32[np.ndarray, "n d"]]

    def measure(self, images: Images) -> tuple[float, float]:
        """Return the mean distance to the nearest training image, and the share of copies.

        A copy is nearer to a training image than that is to the nearest other one (arXiv 2102.08921, sec. 2.3).
        """
        nearest, place = _nearest(self.encode(images), self._among)
        wanted = np.unique(place)
        others, _ = _nearest(self.features[wanted], self._among, wanted)
        reach = dict(zip(wanted.tolist(), others, strict=True))
        copies = nearest < np.array([reach[own] for own in place.tolist()])
        return float(np.sqrt(nearest).mean()), float(copies.mean())

    @cached_property
    def _among(self) -> Points:
        return Points(self.features)


@dataclass(frozen=True)
class ConceptScorer:
    """Networks that measure images of a concept.

    extract: features of the run's extractor; pairwise: mean perceptual distance of the pairs of some images. nearest
    and pairwise are None where they cannot be measured.
    """

    tagger: Tagger[TaggerSettings]
    extract: Callable[[Images], np.ndarray]
    nearest: NearestTrainingImages | None
    pairwise: Callable[[Images], float] | None

    def score(self, images: Images, concept: int, arm: str) -> Score:
        """Score images of a concept by the tagger alone."""
        return self.score_from(self.tagger.scores(images), concept, arm)

    def score_from(self, scores: Float32[np.ndarray, "n v"], concept: int, arm: str) -> Score:
        """Return the score of images whose scores for all concepts are known."""
        own = scores[:, concept].astype(np.float64)
        can_be_seen = np.isfinite(self.thresholds)
        higher = (scores[:, can_be_seen] > scores[:, [concept]]).sum(1)
        rank, hits = higher / max(int(can_be_seen.sum()), 1), own >= self.thresholds[concept]
        return Score(
            concept, arm, len(own), float(own.mean()), float(own.std()), float(hits.mean()), float(rank.mean())
        )

    @cached_property
    def thresholds(self) -> Float32[np.ndarray, " v"]:
        """Scores from which on an image shows a concept."""
        return self.tagger.thresholds

    def with_distances(self, scored: Score, images: Images, real: UInt8[np.ndarray, "m h w c"] | None) -> Score:
        """Add diversity, distances to training images and, beside enough real images, kernel distance and coverage.

        real: real images of the concept; None where `images` are these.
        """
        diversity = self.pairwise(images) if self.pairwise is not None and len(images) > 1 else None
        nearest, copies = self.nearest.measure(images) if self.nearest is not None else (None, None)
        scored = replace(scored, diversity=diversity, nearest=nearest, copies=copies)
        if real is None or len(real) < MIN_REAL_IMAGES or len(images) < 2:
            return scored
        own, theirs = self.extract(images), self.extract(real)
        covered = float(overlap(theirs, own).coverage[0]) if len(own) > DENSITY_NEIGHBOURS else None
        return replace(scored, kid=kernel_distance(own, theirs), coverage=covered)


def _nearest(
    points: Float32[np.ndarray, "n d"], among: Points, own: Int64[np.ndarray, " n"] | None = None
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the squared distance of points to the nearest of others, and its place; own: places that do not count."""
    distances, places = np.empty(len(points)), np.empty(len(points), dtype=np.int64)
    for rows, block in among.blocks(points):
        if own is not None:
            block[np.arange(len(block)), own[rows]] = np.inf
        places[rows] = block.argmin(1)
        distances[rows] = block.min(1)
    return distances, places
