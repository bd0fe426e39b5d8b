"""Tell what a proposal is worth: python -m tests.benchmarks.advice BASE --proposed RUN ... --control RUN ...

BASE made the proposal, whose partition the runs after --proposed were trained on, and those after --control on that of
`tests.benchmarks.control_proposal`: with other seeds, the same ones on both sides. Differences are of relative scores.
Two trainings differ in all concepts at once, which no interval over concepts knows: those of `moved` and `others` are
for these trainings, and `moved less others` takes off what all have; its interval is over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hpcddm.evaluation.concepts.caption_overlap import CaptionOverlap
from hpcddm.evaluation.concepts.summary_text import interval_text
from hpcddm.evaluation.statistics import jackknife
from hpcddm.files import checked_reads
from hpcddm.runs.files import CONCEPTS_FILE
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.unit_keys import CONCEPT_ANALYSIS, HOME_ARM
from tests.benchmarks.tables import parser_of, print_header, print_row

Content = Mapping[str, Any]
COLUMNS = ("concepts", "arm", "n", "proposed", "control", "difference", "by seed")


def scores(contents: Sequence[Content], arm: str) -> Float[np.ndarray, "r c"]:
    """Collect the relative scores of all concepts in every run; NaN where there is none."""
    table = [[row["scores"].get(arm, {}).get("relative") for row in content["concepts"]] for content in contents]
    return np.array(table, dtype=np.float64)


def compare(base: Content, proposed: Sequence[Content], control: Sequence[Content], arm: str) -> list[list[str]]:
    """Make the rows of the table: of the concepts that the proposal moves, of the others, and of their difference."""
    sides = [scores(own, arm) for own in (proposed, control)]
    gains, moved = sides[0] - sides[1], np.zeros(len(base["concepts"]), dtype=bool)
    moved[base["proposal"]["concepts"]] = True
    known = np.isfinite(gains).all(0)
    overlap = CaptionOverlap.of(
        (row["concept"], row["captions"]) for content in (*proposed, *control) for row in content["concepts"]
    )
    rows = []
    for title, wanted in (("moved", moved), ("others", ~moved)):
        places = np.flatnonzero(wanted & known)
        scored = sum(bool(base["concepts"][place]["scores"]) for place in np.flatnonzero(wanted))
        gain = asdict(jackknife.mean(gains[:, places].mean(0), overlap.matrix(places))) if len(places) else None
        means = [f"{own[:, places].mean():.2f}" if len(places) else "-" for own in sides]
        by_seed = [f"{value:+.2f}" for value in gains[:, places].mean(1)] if len(places) else []
        rows.append([title, arm, f"{len(places)} of {scored}", *means, interval_text(gain), ", ".join(by_seed)])
    if (moved & known).any() and (~moved & known).any():
        apart = gains[:, moved & known].mean(1) - gains[:, ~moved & known].mean(1)
        gain = asdict(jackknife.mean(apart))
        by_seed = [f"{value:+.2f}" for value in apart]
        rows.append(["moved less others", arm, "", "", "", interval_text(gain), ", ".join(by_seed)])
    return rows


def check_alike(base: Content, runs: Sequence[Content]) -> str:
    """Say why runs do not compare; '' where they do."""
    names = [row["name"] for row in base["concepts"]]
    for content in runs:
        if [row["name"] for row in content["concepts"]] != names:
            return "runs have different vocabularies"
        for key in ("frequency", "arm", "settings"):
            if content[key] != base[key]:
                return f"{key} is {base[key]} in the base, and {content[key]} in another run"
    return ""


def read(root: Path) -> Content:
    """Read what a run knows of its concepts."""
    content: Content = checked_reads.read_json(RunDir(root).unit(CONCEPT_ANALYSIS) / CONCEPTS_FILE) or {}
    return content


def main() -> None:
    """Read the runs and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("--proposed", type=Path, nargs="+", required=True)
    parser.add_argument("--control", type=Path, nargs="+", required=True)
    options = parser.parse_args()
    base, proposed, control = read(options.base), *([*map(read, own)] for own in (options.proposed, options.control))
    seeds = [[content["seed"] for content in own] for own in (proposed, control)]
    if seeds[0] != seeds[1] or base["seed"] in seeds[0]:
        parser.error(f"both sides need the same seeds, other ones than {base['seed']}, not {seeds[0]} and {seeds[1]}")
    if reason := check_alike(base, [*proposed, *control]):
        parser.error(reason)
    print_header(*COLUMNS)
    for arm in (base["arm"], HOME_ARM):
        for row in compare(base, proposed, control, arm):
            print_row(*row)


if __name__ == "__main__":
    main()
