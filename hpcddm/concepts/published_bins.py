"""The arithmetic of the figures of arXiv 2404.04125, as its released notebooks do it, on tables as it released them.

One table holds the frequency of every concept, {concept: count}; another one the results by model, {model:
{"classwise": {concept: result}}}, where a result is an accuracy, or the list of scores of all prompts with the concept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from hpcddm.uncertainty.distributions import correlation_p_value
from hpcddm.uncertainty.jackknife import Moments

Result = float | Sequence[float]
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Figure:
    """Bins of one kind of figure, and those of them that are drawn and correlated."""

    edges: int
    drawn: slice
    least_scores: int
    """Scores that a concept needs."""
    is_complete: bool
    """True where every concept with a count must have a result."""


CLASSIFICATION = Figure(edges=12, drawn=slice(1, -1), least_scores=1, is_complete=True)
"""Neither the first bin, of the concepts with the least frequency (0 and 1 are one), nor the last is drawn."""
TEXT_TO_IMAGE = Figure(edges=7, drawn=slice(-4, None), least_scores=6, is_complete=False)
"""Only the last four bins are drawn; concepts in fewer than six prompts are left out."""


@dataclass(frozen=True)
class PublishedBin:
    """Concepts above the edge before up to this edge."""

    edge: float
    """Upper bound of frequency, in the bin; the abscissa of its mean."""
    concepts: int
    mean: float | None
    deviation: float | None
    """Standard deviation over the concepts, of the population; None, as the mean, for a bin without concepts."""
    is_drawn: bool


@dataclass(frozen=True)
class PublishedFit:
    """Bins of log frequency, and Pearson's r of log edge and mean score over those that are drawn."""

    bins: tuple[PublishedBin, ...]
    r_of_bin_means: float | None
    """None where fewer than three drawn bins have concepts, or all have the same mean."""
    p: float | None
    """Two-sided p-value of r by Student's t."""
    significant: bool
    """True for p < 0.05, which the figures mark with two stars."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return asdict(self)


def paired(
    counts: Mapping[str, int], results: Mapping[str, Result], figure: Figure = CLASSIFICATION
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Return frequency and score of the concepts, by name; the score of a list is its mean.

    Of classes every one must have a result (ValueError names those without); of concepts in prompts those count that
    are in both tables and in as many prompts as the figure asks. Several data sets are pooled by concatenation.
    """
    missing = sorted(counts.keys() - results.keys())
    if missing and figure.is_complete:
        raise ValueError(f"{len(missing)} concepts have a count and no result: {', '.join(missing[:5])}")
    names = [name for name in sorted(counts.keys() & results.keys()) if _size(results[name]) >= figure.least_scores]
    scores = [float(np.mean(results[name])) for name in names]
    return np.array([float(counts[name]) for name in names]), np.array(scores)


def _size(result: Result) -> int:
    return len(result) if isinstance(result, Sequence) else 1


def published_fit(
    frequencies: Num[np.ndarray, " c"], scores: Num[np.ndarray, " c"], figure: Figure = CLASSIFICATION
) -> PublishedFit:
    """Bin scores by log frequency, and correlate the means of the drawn bins with the log of their upper edges.

    Frequencies of 0 count as 1. The edges are evenly spaced in the logarithm from the least frequency to the
    greatest; a bin holds what is above the edge before, up to its own, so that the first holds the least frequency
    alone. Unlike in the notebooks an empty bin has no mean (those fail, or take it for 0). Raises ValueError where
    there are no concepts, a frequency is negative or a score is not finite.
    """
    if not len(scores) or not np.isfinite(scores).all() or not (frequencies >= 0).all():
        raise ValueError("bins need at least one concept, counts of 0 or more, and finite scores")
    logs = np.log(np.maximum(frequencies, 1))
    edges = np.linspace(logs.min(), logs.max(), figure.edges)
    numbers = np.digitize(logs, edges, right=True)
    drawn = range(figure.edges)[figure.drawn]
    bins = [_bin(edges[number], scores[numbers == number], number in drawn) for number in range(figure.edges)]
    points = [(edge, entry.mean) for edge, entry in zip(edges, bins, strict=True) if entry.is_drawn and entry.concepts]
    r = float(Moments.of(np.array(points)).pearson(0, 1)[0]) if len(points) > 2 else np.nan
    if not np.isfinite(r):
        return PublishedFit(tuple(bins), None, None, False)
    p = correlation_p_value(r, len(points))
    return PublishedFit(tuple(bins), r, p, p < SIGNIFICANT)


def _bin(log_edge: float, scores: Num[np.ndarray, " b"], is_drawn: bool) -> PublishedBin:
    edge, count = float(np.exp(log_edge)), len(scores)
    if not count:
        return PublishedBin(edge, 0, None, None, is_drawn)
    return PublishedBin(edge, count, float(scores.mean()), float(scores.std()), is_drawn)
