"""Scores of one concept in one arm, absolute and relative to real images."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

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

    1 is as good as real ones, 0 as good as any other image. None where real ones do not stand out: where they are not
    `LEAST_SIGNAL` standard errors, of as many different things without the concept, above those.
    """
    real, others = of_concept[REAL_ARM], of_concept[OTHER_ARM]
    if arm not in of_concept or not stands_out(real, others):
        return None
    return (of_concept[arm].score - others.score) / (real.score - others.score)


def stands_out(real: Score, others: Score) -> bool:
    """Tell if real images of a concept score so much above others that samples can be compared with them."""
    error = others.deviation / np.sqrt(real.different or real.images)
    return bool(real.score - others.score > LEAST_SIGNAL * error)
