"""Tell what a proposal is worth: python -m tests.benchmarks.advice BASE --proposed RUN ... --control RUN ...

BASE made the proposal, whose partition the runs after --proposed were trained on, and those after --control on that of
`tests.benchmarks.control_proposal`: with other seeds, the same ones on both sides. The difference is of relative
scores, a concept's mean over the seeds, with intervals of 95 % over concepts; `others` tells what moving cost there.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcddm.concepts import jackknife
from hpcddm.concepts.answer import interval_text
from hpcddm.concepts.overlap import Overlap
from hpcddm.concepts.table import HOME_ARM
from hpcddm.pipeline.concepts import CONCEPTS_FILE
from hpcddm.pipeline.keys import CONCEPTS
from hpcddm.rundir import atomic
from hpcddm.rundir.layout import RunDir

Content = Mapping[str, Any]


def scores(contents: Sequence[Content], arm: str) -> dict[str, list[float]]:
    """Collect the relative scores of every concept that has one in all runs, by its name, in the order of the runs."""
    of_runs = [
        {row["name"]: row["scores"][arm]["relative"] for row in content["concepts"] if arm in row["scores"]}
        for content in contents
    ]
    names = [name for name in of_runs[0] if all(own.get(name) is not None for own in of_runs)]
    return {name: [own[name] for own in of_runs] for name in names}


def compare(base: Content, proposed: Sequence[Content], control: Sequence[Content], arm: str) -> list[list[str]]:
    """Make the rows of the table, of the concepts that the proposal moves and of the others."""
    with_proposal, with_control = scores(proposed, arm), scores(control, arm)
    moved = {base["concepts"][concept]["name"] for concept in base["proposal"]["concepts"]}
    overlap = Overlap.of((row["name"], row["captions"]) for content in proposed for row in content["concepts"])
    rows = []
    known = [name for name in with_proposal if name in with_control]
    for title, names in (
        ("moved", [name for name in known if name in moved]),
        ("others", [name for name in known if name not in moved]),
    ):
        sides = [np.array([np.mean(side[name]) for name in names]) for side in (with_proposal, with_control)]
        gain = jackknife.mean(sides[0] - sides[1], overlap.matrix(names)).as_json() if names else None
        means = [f"{own.mean():.2f}" if len(own) else "-" for own in sides]
        rows.append([title, arm, str(len(names)), *means, interval_text(gain)])
    return rows


def read(root: Path) -> Content:
    """Read what a run knows of its concepts."""
    content: Content = atomic.read_json(RunDir(root).unit(CONCEPTS) / CONCEPTS_FILE) or {}
    return content


def main() -> None:
    """Read the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--proposed", type=Path, nargs="+", required=True)
    parser.add_argument("--control", type=Path, nargs="+", required=True)
    options = parser.parse_args()
    base, proposed, control = read(options.base), *([*map(read, own)] for own in (options.proposed, options.control))
    seeds = [[content["seed"] for content in own] for own in (proposed, control)]
    if seeds[0] != seeds[1] or base["seed"] in seeds[0]:
        parser.error(f"both sides need the same seeds, other ones than {base['seed']}, not {seeds[0]} and {seeds[1]}")
    print("| concepts | arm | n | proposed | control | difference |\n| --- | --- | --- | --- | --- | --- |")
    for arm in (base["arm"], HOME_ARM):
        for row in compare(base, proposed, control, arm):
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
