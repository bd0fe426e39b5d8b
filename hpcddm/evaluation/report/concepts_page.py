"""Page about the concepts: which frequency counts, badly drawn concepts, and changes of the partition."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcddm.evaluation.concepts.concept_table import ConceptRow
from hpcddm.evaluation.report import concept_plots, image_grids, plots, rendering
from hpcddm.evaluation.report.concept_facts import (
    FIT_COLUMNS,
    MAX_NEVER,
    MAX_SPLIT,
    ConceptFacts,
    shown_name,
    title_of,
)
from hpcddm.evaluation.report.concept_images import ConceptImages
from hpcddm.evaluation.report.concept_plots import ArmCurve

PICTURE_COLUMNS, IMAGES_WIDTH, PICTURE_PIXELS = 2, 136, 48
"""Pictures in a row of one arm, its width in CSS pixels, and the largest side of a picture."""


def render(facts: ConceptFacts, shown: ConceptImages) -> str:
    """Render the page of a run's concepts as HTML in ASCII."""
    values = template_values(facts, shown)
    return rendering.render("concepts.html.j2", name=facts.content["experiment"], concepts=values)


def template_values(facts: ConceptFacts, shown: ConceptImages) -> dict[str, Any]:
    """Return the values of the templates, for the page and for the report."""
    content = facts.content
    return {
        "facts": facts, "answer": facts.answer, "curves": _curves(facts),
        "fits": facts.fit_rows(), "fit_columns": FIT_COLUMNS, "bins": facts.bins(),
        "drawn": _drawn(facts, shown), "split": facts.split[:MAX_SPLIT],
        "experts": content["advice"]["experts"], "alignment": _alignment(facts),
        "name_of": shown_name, "title_of": title_of, "widths": _widths, "said": _describe_counts,
    }  # fmt: skip


def _curves(facts: ConceptFacts) -> list[tuple[str, str, str]]:
    """Draw the score against both frequencies, each plot with its title and a remark."""
    drawn = []
    for kind, key, title in (("total", "frequency", "All the data"), ("home", "at_home", "Inside its expert")):
        fitted = [arm for arm in facts.arms if arm in facts.fitted]
        arms = [ArmCurve(arm, facts.fitted[arm][kind], _points(facts.rows, arm, key)) for arm in fitted]
        if arms:
            label = f"training samples, {title.lower()}"
            svg = concept_plots.quality(f"concepts-{kind}", arms, label)
            curve = arms[0].curve
            never = ", and those never seen" if curve["zeros"] else ""
            drawn.append((title, f"{curve['concepts']} concepts{never}", svg))
    return drawn


def _points(rows: Sequence[ConceptRow], arm: str, key: str) -> list[tuple[float, float]]:
    return [(getattr(row, key), score) for row in rows if (score := row.relative(arm)) is not None]


def _drawn(facts: ConceptFacts, shown: ConceptImages) -> list[dict[str, Any]]:
    """Make the tables of concepts with their pictures."""
    occurring = f"of {len(facts.occurring)} with a score that the training data have"
    groups = (
        ("Worst drawn", f"{occurring}, by {facts.arm}", facts.worst),
        ("Never in the training data", f"the worst of {len(facts.never)} with a score", facts.never[:MAX_NEVER]),
    )
    pictured = facts.pictured()
    tables = []
    for title, remark, rows in groups:
        columns = list(dict.fromkeys(arm for row in rows for arm, _ in pictured[row.concept]))
        entries = [
            {"row": row, "cells": [_cell(row, arm, shown.get(row.concept, {})) for arm in columns]} for row in rows
        ]
        tables.append({"title": title, "remark": remark, "columns": columns, "rows": entries})
    return [table for table in tables if table["rows"]]


def _cell(row: ConceptRow, arm: str, shown: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Make a cell: pictures, where there are some, and the score; that of real images is 1 by definition."""
    images = shown.get(arm)
    picture = None
    if images is not None and len(images):
        small = image_grids.shrink(images, PICTURE_PIXELS)
        picture = rendering.grid_image(small, PICTURE_COLUMNS, IMAGES_WIDTH, PICTURE_COLUMNS)
    score = row.relative(arm)
    return {"title": title_of(arm), "picture": picture, "score": "" if score is None else f"{score:.2f}"}


def _widths(counts: Sequence[int]) -> list[tuple[int, str]]:
    """Return the experts with some of a concept, each with the width of its part of a bar in per cent."""
    total = max(sum(counts), 1)
    return [(expert, f"{100 * count / total:.2f}") for expert, count in enumerate(counts) if count]


def _describe_counts(counts: Sequence[int]) -> str:
    """Say in words which experts have how many, the most first."""
    order = sorted((-count, expert) for expert, count in enumerate(counts) if count)
    return ", ".join(f"expert {expert}: {-count:,}" for count, expert in order)


def _alignment(facts: ConceptFacts) -> dict[str, Any] | None:
    """Draw the alignment as titles, remarks and plots; or give the reason why it is left out."""
    content = facts.content["alignment"]
    if content is None:
        return None
    if "left_out" in content:
        return {"left_out": content["left_out"], "plots": []}
    lines = {"selected": "named by the router", "others": "others", "best": "best"}
    errors = {label: content["errors"][name] for name, label in lines.items()}
    best = content["errors"]["selected_is_best"]
    drawn = [
        ("Error by noise level", "squared, of the experts' velocities",
         plots.by_time("concepts-errors", content["levels"], errors, "mean squared error")),
        ("The expert named is the best one", "share of held-out images",
         plots.by_time("concepts-best", content["levels"], {"named is best": best}, "share of images", percent=True,
                       levels={"by chance": 1 / len(facts.content["advice"]["experts"])})),
    ]  # fmt: skip
    if content.get("distances"):
        nearer = {
            arm: [asked / every if every else 1.0 for asked, every in zip(one["asked"], one["every"], strict=True)]
            for arm, one in content["distances"].items()
        }
        plot = plots.by_time(
            "concepts-distances", content["times"], nearer, "distance, all clusters 1", levels={"all": 1.0}
        )
        drawn.append(("Distance to the clusters of those asked", "of the estimated image while it is drawn", plot))
    return {"left_out": content.get("reason") or "", "plots": drawn}
