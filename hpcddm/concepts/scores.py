"""Scores of one concept in one arm, absolute and relative to real images."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

REAL_ARM, OTHER_ARM, TRAIN_ARM = "real", "others", "train"
"""Arms of real images: held-out images with a concept, held-out images without it, and training images with it.

A model that has memorised its data would draw the last; a trained tagger has seen them, too.
"""
LEAST_SIGNAL = 3.0
"""Standard errors by which real images of a concept must score above others, for its samples to be compared."""


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
    """Of held-out images that have the concept, the number of different captions: its independent witnesses."""
    home_usage: float | None = None
    """Weight of the concept's home expert, over samples and steps."""
    chance: float | None = None
    """Tagger's score of the concept for the arm's samples of others, whose captions do not name it."""

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
    """Divide an arm's score by that of real images, both less the score of images that do not have the concept.

    These are the arm's own samples of other concepts where there are any, so that what all of its samples have, such as
    blur, cancels: 1 is as good as real ones, 0 as good as without the prompt. None where real ones do not stand out:
    where they are not `LEAST_SIGNAL` standard errors, of as many different things without the concept, above others.
    """
    real, others = of_concept[REAL_ARM], of_concept[OTHER_ARM]
    if arm not in of_concept or not stands_out(real, others):
        return None
    own = of_concept[arm]
    chance = others.score if own.chance is None else own.chance
    return (own.score - chance) / (real.score - others.score)


def stands_out(real: Score, others: Score) -> bool:
    """Tell if real images of a concept score so much above others that samples can be compared with them."""
    error = others.deviation / np.sqrt(real.different or real.images)
    return bool(real.score - others.score > LEAST_SIGNAL * error)


@dataclass(frozen=True)
class ScoresOfOthers:
    """Scores of samples for the concepts that their captions do not name: what an arm's samples score by chance.

    sums, counts: by arm, over the concepts of the choice, in its order.
    """

    sums: dict[str, Float64[np.ndarray, " c"]] = field(default_factory=dict)
    counts: dict[str, Int64[np.ndarray, " c"]] = field(default_factory=dict)

    def add(self, arm: str, scores: Float32[np.ndarray, "n c"], named: Bool[np.ndarray, "n c"]) -> None:
        """Add samples of an arm; named: concepts that the caption of each sample names."""
        own = np.where(named, 0, scores.astype(np.float64)).sum(0)
        self._add(arm, own, (~named).sum(0))

    def merge(self, content: Mapping[str, Any]) -> None:
        """Add what `as_json` of another part made."""
        for arm, (sums, counts) in content.items():
            self._add(arm, np.array(sums, np.float64), np.array(counts, np.int64))

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {arm: [self.sums[arm].tolist(), self.counts[arm].tolist()] for arm in self.sums}

    def with_chance(self, scores: Iterable[Score], places: Mapping[int, int]) -> Iterator[Score]:
        """Yield scores with the chance of their arm and concept; places: of the concepts in the choice."""
        for score in scores:
            place = places[score.concept]
            count = self.counts[score.arm][place] if score.arm in self.counts else 0
            yield replace(score, chance=float(self.sums[score.arm][place] / count)) if count else score

    def _add(self, arm: str, sums: Float64[np.ndarray, " c"], counts: Int64[np.ndarray, " c"]) -> None:
        self.sums[arm] = self.sums.get(arm, np.zeros(len(sums))) + sums
        self.counts[arm] = self.counts.get(arm, np.zeros(len(counts), np.int64)) + counts
