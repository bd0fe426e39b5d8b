"""Fits of quality to frequency, over the concepts of one run, or of several that differ in their seed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from hpcddm.concepts.curves import LEAST_CONCEPTS, fit_curve
from hpcddm.concepts.home_share import home_against_total
from hpcddm.concepts.overlap import Overlap
from hpcddm.concepts.scores import OTHER_ARM, PROMPT_ARM, REAL_ARM, TRAIN_ARM
from hpcddm.concepts.table import Row
from hpcddm.concepts.within_concepts import home_within_concepts
from hpcddm.uncertainty.jackknife import spearman

FREQUENCIES = {"total": "frequency", "home": "at_home", "text": "text", "image": "image"}
"""Frequencies that scores are fitted to, by their names in a row."""
MINUS = " minus "
"""Between the names of two arms, of which the outcome is the difference of their scores."""

Contents = Sequence[Mapping[str, Any]]
"""Contents of the files concepts.json of runs."""


def fits(contents: Contents) -> dict[str, Any]:
    """Fit the relative score of every arm, and what each has more than the monolith, to every frequency.

    Returns, by arm, `arms`: the curves by frequency; `against`: total and home frequency compared; of several runs also
    `within`: a concept's scores compared with its home frequencies there. An arm without a score is left out. The
    difference is what decentralising adds: that a concept is easy cancels.
    """
    tables = [map(Row.from_json, content["concepts"]) for content in contents]
    rows = [(run, row) for run, table in enumerate(tables) for row in table if row.scores]
    known = {arm for _, row in rows for arm in row.scores if row.relative(arm) is not None}
    arms = {arm: _relative(rows, arm) for arm in sorted(known - {REAL_ARM, OTHER_ARM, PROMPT_ARM})}
    dense = contents[0]["dense"]
    if dense in arms:
        others = [arm for arm in arms if arm not in (dense, TRAIN_ARM) and not arm.startswith("expert-")]
        arms |= {f"{arm}{MINUS}{dense}": arms[arm] - arms[dense] for arm in others}
    scored = {arm: outcomes for arm, outcomes in arms.items() if np.isfinite(outcomes).any()}
    runs, names = np.array([run for run, _ in rows]), np.array([row.concept for _, row in rows])
    overlap = Overlap.of((row.concept, row.captions) for _, row in rows)
    counts = {name: _column(rows, key) for name, key in FREQUENCIES.items()}
    curves = {
        arm: {name: fit_curve(count, outcomes, names, runs, overlap).as_json() for name, count in counts.items()}
        for arm, outcomes in scored.items()
    }
    against = {
        arm: home_against_total(outcomes, counts["total"], counts["home"], names, runs, overlap).as_json()
        for arm, outcomes in scored.items()
    }
    within = {
        arm: home_within_concepts(outcomes, counts["home"], names, runs, overlap).as_json()
        for arm, outcomes in scored.items()
        if len(contents) > 1
    }
    return {"runs": len(contents), "arms": curves, "against": against, "within": within}


def disagreement_against_score(
    disagreement: Mapping[str, float], rows: Sequence[Row], arm: str
) -> dict[str, Any] | None:
    """Estimate Spearman's rho of the experts' disagreement about a concept's real images and its score by an arm.

    disagreement: by the concept's number; rows: the table. Below 0, what experts disagree about is drawn worse (arXiv
    2602.02685). None for fewer than four concepts.
    """
    known = [row for row in rows if str(row.concept) in disagreement and row.relative(arm) is not None]
    if len(known) < LEAST_CONCEPTS:
        return None
    differing = np.array([disagreement[str(row.concept)] for row in known])
    scores = np.array([row.relative(arm) for row in known])
    overlap = Overlap.of((row.concept, row.captions) for row in known).matrix([row.concept for row in known])
    estimate = spearman(differing, scores, overlap)
    return estimate.as_json() | {"concepts": len(known)} if estimate else None


def _relative(rows: Iterable[tuple[int, Row]], arm: str) -> Float64[np.ndarray, " n"]:
    """Return an arm's relative score in every row; NaN where there is none."""
    scores = [row.relative(arm) for _, row in rows]
    return np.array([np.nan if score is None else score for score in scores], dtype=np.float64)


def _column(rows: Iterable[tuple[int, Row]], key: str) -> Float64[np.ndarray, " n"]:
    return np.array([getattr(row, key) for _, row in rows], dtype=np.float64)
