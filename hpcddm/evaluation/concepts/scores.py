"""Scores of one concept in one arm, absolute and relative to real images."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from hpcddm.errors import require

REAL_ARM, OTHER_ARM, PROMPT_ARM, TRAIN_ARM = "real", "others", "prompts", "train"
"""Arms of real images: held-out images with a concept; held-out images without it; those with it whose captions the
samples have, each as often as a sample; and training images with it.

A model that has memorised its data would draw the last; a trained tagger was trained on them, too.
"""
MIN_SIGNAL = 3.0
"""Standard errors by which real images of a concept must score above others, for its samples to be compared."""

MAX_FIGURE = 1e70
"""Largest figure from which moments are computed, as the square of its square is finite."""


def require_moderate(*figures: float) -> None:
    """Raise `ValueError` for a figure from which no moments can be computed."""
    require(not any(abs(figure) > MAX_FIGURE for figure in figures), "holds a figure that is too large", ValueError)


@dataclass(frozen=True)
class Score:
    """Means over the images of one concept in one arm; None for a quantity that cannot be measured there."""

    concept: int
    arm: str
    images: int
    score: float
    """Tagger's score of the concept."""
    deviation: float
    """Standard deviation of that score over the images."""
    hit_rate: float
    """Share of images that count as showing it, as in the image index."""
    rank: float
    """Share of the vocabulary with a higher score: 0 where it is the highest of all."""
    diversity: float | None = None
    """Perceptual distance between pairs of images."""
    nearest: float | None = None
    """Distance to the nearest training image, in the features by which these are clustered."""
    copies: float | None = None
    """Share of images nearer to a training image than any other one is to that (AuthPct, arXiv 2102.08921)."""
    kid: float | None = None
    """Kernel distance to the real images of the concept."""
    coverage: float | None = None
    """Share of its real images in whose neighbourhood some sample is."""
    different: int | None = None
    """Number of different captions of the held-out images that have the concept."""
    home_usage: float | None = None
    """Weight of the concept's home expert, over samples and steps."""
    chance: float | None = None
    """Tagger's score of the concept for the same model's samples, or real images, of the other concepts: of those whose
    captions do not name it."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it, without quantities that are None."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def by_concept(scores: Iterable[Score]) -> dict[int, dict[str, Score]]:
    """Return scores by concept and arm."""
    ordered: dict[int, dict[str, Score]] = {}
    for score in scores:
        ordered.setdefault(score.concept, {})[score.arm] = score
    return ordered


def relative(of_concept: Mapping[str, Score], arm: str) -> float | None:
    """Divide an arm's score by that of the real images of its prompts, both less their chance.

    Chance is the score of the same model's, or the prompts' real, images of the other concepts, so that blur and other
    traits of all samples of a model cancel: 1 is as good as real, 0 as good as without the prompt. The chance of
    training images is the score of held-out images without the concept. Returns None without another concept, or if
    real images do not stand out.
    """
    real, others, prompts = (of_concept.get(name) for name in (REAL_ARM, OTHER_ARM, PROMPT_ARM))
    if arm not in of_concept or real is None or others is None or prompts is None or prompts.chance is None:
        return None
    chance = others.score if arm == TRAIN_ARM else of_concept[arm].chance
    signal = prompts.score - prompts.chance
    if chance is None or not stands_out(real, others) or signal <= _min_signal(real, others):
        return None
    return (of_concept[arm].score - chance) / signal


def stands_out(real: Score, others: Score) -> bool:
    """Tell if real images of a concept score so much above others that samples can be compared with them."""
    return bool(real.score - others.score > _min_signal(real, others))


def _min_signal(real: Score, others: Score) -> float:
    """Return `MIN_SIGNAL` standard errors of others, of as many as there are different captions of the concept."""
    return float(MIN_SIGNAL * others.deviation / np.sqrt(real.different or real.images))


@dataclass(frozen=True)
class ChanceScores:
    """Tagger's scores of images for the concepts that their captions do not name, added up.

    sums, counts: by model, or `PROMPT_ARM` for the real images of the prompts; over the concepts of the choice.
    """

    sums: dict[str, Float64[np.ndarray, " c"]] = field(default_factory=dict)
    counts: dict[str, Int64[np.ndarray, " c"]] = field(default_factory=dict)

    def add(self, model: str, scores: Float32[np.ndarray, "n c"], in_captions: Bool[np.ndarray, "n c"]) -> None:
        """Add images of a model; in_captions: concepts that the caption of each image names."""
        self._add(model, np.where(in_captions, 0, scores.astype(np.float64)).sum(0), (~in_captions).sum(0))

    def merge(self, content: Mapping[str, Any]) -> None:
        """Add what `as_json` of another part made."""
        for model, (sums, counts) in content.items():
            self._add(model, np.array(sums, np.float64), np.array(counts, np.int64))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {model: [self.sums[model].tolist(), self.counts[model].tolist()] for model in self.sums}

    def of(self, model: str, place: int) -> float | None:
        """Return the mean of a model's images for the concept at a place of the choice; None without such images."""
        count = self.counts[model][place] if model in self.counts else 0
        return float(self.sums[model][place] / count) if count else None

    def _add(self, model: str, sums: Float64[np.ndarray, " c"], counts: Int64[np.ndarray, " c"]) -> None:
        self.sums[model] = self.sums.get(model, np.zeros(len(sums))) + sums
        self.counts[model] = self.counts.get(model, np.zeros(len(counts), np.int64)) + counts
