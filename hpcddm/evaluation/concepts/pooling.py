"""Scores of several runs, pooled so that each concept counts once."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64, Num, Shaped


@dataclass(frozen=True)
class PooledScores:
    """Rows that have a score, after the differences between runs are taken off; a concept may have several."""

    scores: Float[np.ndarray, " n"]
    frequencies: Float[np.ndarray, "n f"]
    concepts: Int64[np.ndarray, " n"]
    runs: int
    dropped: int
    """Rows without a score."""
    names: Shaped[np.ndarray, " m"]
    """Names of the concepts by their numbers."""

    def names_of(self, rows: Bool[np.ndarray, " n"]) -> Shaped[np.ndarray, " c"]:
        """Return the names of the concepts of the chosen rows, in the order of `per_concept`."""
        return self.names[np.unique(self.concepts[rows])]

    def per_concept(self, rows: Bool[np.ndarray, " n"]) -> Float[np.ndarray, "c f1"]:
        """Average the score, first, and log10 of the frequencies over the chosen rows of every concept.

        Seeds of one concept are not independent concepts: a fit to their rows would understate the error.
        """
        return group_means(np.column_stack([self.scores[rows], np.log10(self.frequencies[rows])]), self.concepts[rows])

    def scores_per_concept(self, rows: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " c"]:
        """Average the score over the chosen rows of every concept, whatever their frequency."""
        return group_means(self.scores[rows, None], self.concepts[rows])[:, 0]


def pool(
    scores: Num[np.ndarray, " n"],
    frequencies: Num[np.ndarray, "n f"],
    concepts: Shaped[np.ndarray, " n"],
    runs: Shaped[np.ndarray, " n"] | None = None,
) -> PooledScores:
    """Drop rows without a finite score, and take the runs' effects off the others.

    frequencies: counts; concepts, runs: names or numbers; without runs, all rows are of one. Raises ValueError for a
    frequency that is negative or not finite, and where no row has a score.
    """
    if not (np.isfinite(frequencies).all() and (frequencies >= 0).all()):
        raise ValueError("a frequency is negative or not finite; frequencies are counts of samples")
    kept = np.isfinite(scores)
    if not kept.any():
        raise ValueError(f"none of {len(scores)} rows has a score")
    names, concept = np.unique(concepts[kept], return_inverse=True)
    scoring, run = np.unique((np.zeros(len(scores)) if runs is None else runs)[kept], return_inverse=True)
    even = without_run_effects(scores[kept].astype(np.float64), concept, run)
    dropped = int(len(kept) - kept.sum())
    return PooledScores(even, frequencies[kept].astype(np.float64), concept, len(scoring), dropped, names)


def without_run_effects(
    scores: Float[np.ndarray, " n"], concepts: Int64[np.ndarray, " n"], runs: Int64[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Take off each run's effect, estimated by least squares of score = concept + run; their mean stays.

    Where every run scores every concept these are the deviations of the runs' means (fixed effects of a balanced
    panel); elsewhere a run that scores easy concepts is not taken for a good one. A run that shares no concept with
    others is left as it is.
    """
    dummies = np.eye(runs.max() + 1)[runs]
    columns = np.column_stack([dummies, scores])
    within = columns - group_means(columns, concepts)[concepts]
    effects = np.linalg.lstsq(within[:, :-1], within[:, -1], rcond=1e-10)[0][runs]
    return scores - (effects - effects.mean())


def group_means(columns: Float[np.ndarray, "n q"], groups: Int64[np.ndarray, " n"]) -> Float[np.ndarray, "g q"]:
    """Average rows by group, in the order of their numbers; groups without a row have none."""
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, group, columns)
    return sums / counts[:, None]
