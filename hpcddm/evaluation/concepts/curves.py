"""Quality against frequency: how a concept's score rises with the logarithm of its count (arXiv 2404.04125)."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64, Num, Shaped

from hpcddm.evaluation.concepts import pooling
from hpcddm.evaluation.concepts.caption_overlap import NONE_SHARED, CaptionOverlap
from hpcddm.evaluation.statistics import jackknife
from hpcddm.evaluation.statistics.jackknife import IntervalEstimate, LeastSquares, Moments
from hpcddm.evaluation.statistics.shared_errors import Cosines, effective_number

BINS_PER_DECADE = 2
MIN_CONCEPTS = 4
"""Concepts that a fit needs: its two parameters, and two degrees of freedom."""


@dataclass(frozen=True)
class FittedScore:
    """Score of the fitted line at a frequency."""

    frequency: float
    score: IntervalEstimate


@dataclass(frozen=True)
class LogLinearFit:
    """Ordinary least squares of score on log10 frequency, one point per concept."""

    slope: IntervalEstimate
    """Score per decade of frequency."""
    intercept: IntervalEstimate
    """Score of the line at a frequency of 1."""
    pearson: IntervalEstimate | None
    """Pearson's r of score and log10 frequency over concepts; None where all scores are equal."""
    line: tuple[FittedScore, ...]
    """The line and its 95 % band (of the line, not of single concepts) at half decades, and at both ends."""


@dataclass(frozen=True)
class FrequencyBin:
    """Mean score of the concepts of half a decade of frequency."""

    low: float
    high: float
    """Bounds of frequency; low belongs to the bin."""
    frequency: float
    """Geometric mean of the concepts' frequencies."""
    concepts: int
    unscored: int
    """Concepts whose rows have no score, of this half decade; they are in no other figure."""
    score: IntervalEstimate | None
    """None where no concept has a score."""


@dataclass(frozen=True)
class ZeroFrequency:
    """Concepts that no training sample has; fits leave them out, because log 0 is undefined."""

    concepts: int
    score: IntervalEstimate


@dataclass(frozen=True)
class FrequencyCurve:
    """Quality against frequency: per concept, by bins, and for the concepts with frequency 0."""

    concepts: int
    """Concepts with a frequency above 0 and a score."""
    effective_concepts: float
    """Concepts that share no captions and have a mean as certain, at least."""
    runs: int
    dropped: int
    """Rows without a score."""
    fit: LogLinearFit | None
    no_fit: str | None
    """Reason for a missing fit."""
    bins: tuple[FrequencyBin, ...]
    zeros: ZeroFrequency | None


def half_decades(frequencies: Num[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return the number of the half decade of frequencies above 0: 0 from 1 on, 1 from 3.16, 2 from 10."""
    return np.floor(np.log10(frequencies) * BINS_PER_DECADE).astype(np.int64)


def fit_curve(
    frequencies: Num[np.ndarray, " n"],
    scores: Num[np.ndarray, " n"],
    concepts: Shaped[np.ndarray, " n"],
    runs: Shaped[np.ndarray, " n"] | None = None,
    overlap: CaptionOverlap = NONE_SHARED,
) -> FrequencyCurve:
    """Fit score = intercept + slope * log10(frequency) over concepts, with 95 % jackknife intervals over concepts.

    concepts, runs: name or number of each row's; runs have fixed effects, and a concept's rows are averaged, so that
    it counts once however many seeds scored it. overlap: of the concepts' captions. Rows with a NaN score are dropped
    and counted. The intervals are for other concepts drawn by the same runs. Raises ValueError if no row has a score or
    a frequency is not a count.
    """
    pooled = pooling.pool(scores, frequencies[:, None], concepts, runs)
    positive = pooled.frequencies[:, 0] > 0
    points, cosines = pooled.per_concept(positive), overlap.matrix(pooled.names_of(positive))
    no_fit = _reason_for_no_fit(points)
    unscored = _unscored(frequencies, concepts, pooled.names)
    bins = _bin_means(points, cosines, half_decades(unscored))
    zeros, of_zeros = pooled.scores_per_concept(~positive), overlap.matrix(pooled.names_of(~positive))
    return FrequencyCurve(
        concepts=len(points),
        effective_concepts=effective_number(cosines, len(points)),
        runs=pooled.runs,
        dropped=pooled.dropped,
        fit=None if no_fit else _fit(points, cosines),
        no_fit=no_fit,
        bins=bins,
        zeros=ZeroFrequency(len(zeros), jackknife.mean(zeros, of_zeros)) if len(zeros) else None,
    )


def _reason_for_no_fit(points: Float[np.ndarray, "c 2"]) -> str | None:
    if len(points) < MIN_CONCEPTS:
        return f"a fit needs {MIN_CONCEPTS} concepts with a frequency above 0 and a score, and there are {len(points)}"
    return f"all {len(points)} concepts have the same frequency" if Moments.of(points).scatter[0, 1, 1] == 0 else None


def _fit(points: Float[np.ndarray, "c 2"], cosines: Cosines) -> LogLinearFit:
    moments, fit = Moments.of(points), LeastSquares.on(points[:, 0], points[:, 1], cosines=cosines)
    slopes = moments.slopes(0, [1])[:, 0]
    intercepts = moments.means[:, 0] - slopes * moments.means[:, 1]

    ends = points[:, 1].min(), points[:, 1].max()
    inside = np.arange(np.ceil(ends[0] * BINS_PER_DECADE), ends[1] * BINS_PER_DECADE) / BINS_PER_DECADE
    places = np.unique([ends[0], *inside, ends[1]])
    return LogLinearFit(
        slope=fit.interval(slopes, [0, 1]),
        intercept=fit.interval(intercepts, [1, 0]),
        pearson=fit.correlation(moments.pearson(0, 1)),
        line=tuple(
            FittedScore(float(10**place), fit.interval(intercepts + slopes * place, [1, place])) for place in places
        ),
    )


def _unscored(
    frequencies: Num[np.ndarray, " n"], concepts: Shaped[np.ndarray, " n"], scored: Shaped[np.ndarray, " m"]
) -> Float[np.ndarray, " u"]:
    """Return the frequency, above 0, of every concept none of whose rows has a score: the geometric mean of these."""
    without = (frequencies > 0) & ~np.isin(concepts, scored)
    _, own = np.unique(concepts[without], return_inverse=True)
    logs = pooling.group_means(np.log10(frequencies[without])[:, None], own) if without.any() else np.empty((0, 1))
    return 10 ** logs[:, 0]


def _bin_means(
    points: Float[np.ndarray, "c 2"], cosines: Cosines, unscored: Int64[np.ndarray, " u"]
) -> tuple[FrequencyBin, ...]:
    """Average the points by half decade; unscored: the half decades of concepts that have no score."""
    scores, logs = points.T
    numbers = half_decades(10**logs)
    bins = []
    for number in np.union1d(numbers, unscored):
        inside = np.flatnonzero(numbers == number)
        low, high = (float(10 ** (bound / BINS_PER_DECADE)) for bound in (number, number + 1))
        centre = float(10 ** logs[inside].mean()) if len(inside) else math.sqrt(low * high)
        within = None if cosines is None else cosines[np.ix_(inside, inside)]
        score = jackknife.mean(scores[inside], within) if len(inside) else None
        missing = int((unscored == number).sum())
        bins.append(FrequencyBin(low, high, centre, len(inside), missing, score))
    return tuple(bins)
