"""Fits of quality to frequency, over the concepts of one run, or of several that differ in their seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float64

from hpcddm.evaluation.concepts.caption_overlap import CaptionOverlap
from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.concepts.curves import fit_curve
from hpcddm.evaluation.concepts.home_share import home_against_total
from hpcddm.evaluation.concepts.scores import OTHER_ARM, PROMPT_ARM, REAL_ARM, TRAIN_ARM

FREQUENCIES = {"total": "frequency", "home": "at_home"}
"""Frequencies that scores are fitted to, by their names in a row."""
MINUS = " minus "
"""Joins the names of two arms in the name of an outcome that is the difference of their scores."""

Contents = Sequence[Mapping[str, Any]]
"""Contents of the files concepts.json of runs."""


def fits(contents: Contents) -> dict[str, Any]:
    """Fit the relative score of every arm, and what each has more than the monolith, to every frequency.

    Returns, by arm, `arms`: the curves by frequency; `against`: total and home frequency compared. An arm without a
    score is left out. The difference is what decentralising adds: that a concept is easy cancels.
    """
    tables = [map(ConceptRow.from_json, content["concepts"]) for content in contents]
    rows = [(run, row) for run, table in enumerate(tables) for row in table if row.scores]
    known = {arm for _, row in rows for arm in row.scores if row.relative(arm) is not None}
    arms = {arm: _relative(rows, arm) for arm in sorted(known - {REAL_ARM, OTHER_ARM, PROMPT_ARM})}
    dense = contents[0]["dense"]
    if dense in arms:
        others = [arm for arm in arms if arm not in (dense, TRAIN_ARM) and not arm.startswith("expert-")]
        arms |= {f"{arm}{MINUS}{dense}": arms[arm] - arms[dense] for arm in others}
    scored = {arm: outcomes for arm, outcomes in arms.items() if np.isfinite(outcomes).any()}
    runs, names = np.array([run for run, _ in rows]), np.array([row.concept for _, row in rows])
    overlap = CaptionOverlap.of((row.concept, row.captions) for _, row in rows)
    counts = {name: _column(rows, key) for name, key in FREQUENCIES.items()}
    curves = {
        arm: {name: asdict(fit_curve(count, outcomes, names, runs, overlap)) for name, count in counts.items()}
        for arm, outcomes in scored.items()
    }
    against = {
        arm: asdict(home_against_total(outcomes, counts["total"], counts["home"], names, runs, overlap))
        for arm, outcomes in scored.items()
    }
    return {"runs": len(contents), "arms": curves, "against": against}


def _relative(rows: Iterable[tuple[int, ConceptRow]], arm: str) -> Float64[np.ndarray, " n"]:
    """Return an arm's relative score in every row; NaN where there is none."""
    scores = [row.relative(arm) for _, row in rows]
    return np.array([np.nan if score is None else score for score in scores], dtype=np.float64)


def _column(rows: Iterable[tuple[int, ConceptRow]], key: str) -> Float64[np.ndarray, " n"]:
    return np.array([getattr(row, key) for _, row in rows], dtype=np.float64)
