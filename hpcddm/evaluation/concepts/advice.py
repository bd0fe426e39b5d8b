"""Advice on the partition: concepts that it splits, experts that starve, and samples that could be moved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.concepts.presence import Pairs

SPLIT, MIN_SPLIT_SAMPLES = 0.5, 10
"""Share at home below which a concept is called split, from so many samples on: fewer are split by chance."""
STARVING = 0.5
"""Samples of an expert, as a multiple of the mean of all, below which it starves."""
WORST = 0.1
"""Share of the scored concepts, the worst drawn ones, whose samples are moved to their home expert."""
MAX_MOVED_SHARE = 0.1
"""Share of all training samples that is moved at most."""


@dataclass(frozen=True)
class ExpertAdvice:
    """Samples and home concepts of an expert, and how well these concepts are drawn."""

    expert: int
    samples: int
    concepts: int
    """Concepts that are at home there."""
    scored: int
    relative: float | None
    """Mean relative score of these, of those that are scored."""
    dense: float | None
    """The same by the monolith."""
    starves: bool


@dataclass(frozen=True)
class Advice:
    """Advice that follows from the table."""

    split: list[int]
    """Concepts that the partition splits across experts, the most frequent first."""
    experts: list[ExpertAdvice]
    worst: list[int]
    """Concepts whose samples the proposal moves, the worst drawn first."""


def advise(table: Sequence[ConceptRow], samples: Sequence[int], arm: str, dense: str | None) -> Advice:
    """Make the advice; samples: of every expert; arm: of the ensemble whose scores say what is drawn badly."""
    split = [row for row in table if row.frequency >= MIN_SPLIT_SAMPLES and (row.share_at_home or 0.0) < SPLIT]
    split.sort(key=lambda row: (-row.frequency, row.name))
    experts = [_expert(table, expert, samples, arm, dense) for expert in range(len(samples))]
    return Advice([row.concept for row in split], experts, worst(table, arm))


def worst(table: Sequence[ConceptRow], arm: str) -> list[int]:
    """Return the concepts of the worst drawn tenth that several experts have."""
    scored = [(score, row) for row in table if (score := row.relative(arm)) is not None and row.frequency]
    scored.sort(key=lambda pair: (pair[0], pair[1].name))
    count = max(round(WORST * len(scored)), 1)
    return [row.concept for _, row in scored[:count] if row.at_home < row.frequency]


def _expert(
    table: Sequence[ConceptRow], expert: int, samples: Sequence[int], arm: str, dense: str | None
) -> ExpertAdvice:
    own = [row for row in table if row.home == expert]
    scored = [row for row in own if row.relative(arm) is not None]
    mean = sum(samples) / len(samples)
    return ExpertAdvice(
        expert,
        samples[expert],
        len(own),
        len(scored),
        _mean([row.relative(arm) for row in scored]),
        _mean([row.relative(dense) for row in scored]) if dense else None,
        samples[expert] < STARVING * mean,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def move_to_home(
    pairs: Pairs, clusters: Int64[np.ndarray, " n"], homes: Mapping[int, int], most: int
) -> tuple[Int64[np.ndarray, " n"], list[int]]:
    """Return the clusters of some samples where those that have a concept go to its home expert, and these concepts.

    pairs: of all these samples; homes: by concept, the worst drawn first: a sample that has several goes to the home of
    the first. most: number of samples that are moved at most; concepts that would need more are left as they are.
    """
    proposed, count, taken = clusters.copy(), 0, list[int]()
    untouched = np.ones(len(clusters), dtype=bool)
    for concept, home in homes.items():
        having = pairs.samples[pairs.concepts == concept]
        own = having[untouched[having]]
        away = own[clusters[own] != home]
        if count + len(away) > most:
            continue
        proposed[away] = home
        untouched[own] = False
        count += len(away)
        taken.append(concept)
    return proposed, taken
