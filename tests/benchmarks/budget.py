"""Atoms and analysis of the budget curve: python -m tests.benchmarks.budget next | rows | choose | table | fit | ...

The protocol is in docs/results/budget-protocol.md. An atom is a part of a sweep that one command runs, on any machine;
`next --run` runs the first whose rows docs/results/budget.csv lacks, and adds them.
"""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcddm.config.experiment import Experiment
from hpcddm.errors import UserError
from hpcddm.launch.load_sweep import matching_labels, read_sweep
from hpcddm.launch.sweep_runs import SweepRun, sweep_runs_of
from hpcddm.runs.run_dir import RunDir
from hpcddm.runs.stored_experiment import stored_experiment
from hpcddm.runs.sweep_index import read_index
from hpcddm.runs.unit_keys import REPORT
from hpcddm.stages.evaluation.evaluate import arm_names
from tests.benchmarks import budget_curve, budget_figure, budget_tables, budget_tuning
from tests.benchmarks.budget_curve import CURVE_SWEEPS, Row
from tests.benchmarks.budget_rows import (
    add,
    budget_of,
    lite0_features,
    recipe_of,
    rows_of,
    shown_arm,
    wall_seconds,
)
from tests.benchmarks.budget_tuning import BY_BUDGET_SWEEP, GRID_SWEEP, GUIDANCE_SWEEP, TUNED_BUDGET

ROWS = Path("docs/results/budget.csv")


ANALYSES = {
    "table": ("ratios to the monolith by three rulers; figures and FLOPs", budget_tables.table),
    "fit": ("where each arm is behind the monolith or ahead", budget_tables.fit),
    "ways": ("one expert per trajectory beside the other ways of drawing", budget_tables.ways),
    "rulers": ("where the rulers order arms alike", budget_tables.rulers),
}
"""What is said of the chosen rows, by verb: its help, and its function."""


@dataclass(frozen=True)
class Atom:
    """Part of a sweep that is run at once: its file, and the values that its settings have."""

    sweep: str
    only: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """Arguments of hpcddm."""
        return ["sweep", self.sweep, "--site", "embedded", *(part for one in self.only for part in ("--only", one))]

    def experiments(self) -> list[Experiment]:
        """Read its settings; needs no images."""
        definition = read_sweep(self.sweep)
        labels = matching_labels(definition, self.only)
        return [experiment for label, experiment in definition.experiments.items() if label in labels]

    def runs(self) -> list[SweepRun]:
        """Plan the runs of its settings, in sweeps/ of the current folder; hashes the images."""
        definition = read_sweep(self.sweep)
        labels = matching_labels(definition, self.only)
        everything = sweep_runs_of(definition, RunDir(Path("sweeps") / definition.name))
        return [one for one in everything if one.label in labels]


TUNING = [Atom(GRID_SWEEP, (f"cluster.experts={experts}",)) for experts in (1, 4, 8)]
TUNING.append(Atom(GUIDANCE_SWEEP, ()))
TUNING += [Atom(BY_BUDGET_SWEEP, (f"cluster.experts={experts}",)) for experts in (1, 4, 8)]
WITH_MONOLITH, EIGHT = ("cluster.experts=1", "cluster.experts=4"), ("cluster.experts=8",)
CURVE = [Atom("budget", (f"seed={seed}", *experts)) for seed in (0, 1, 2) for experts in (WITH_MONOLITH, EIGHT)]
LONGER = [Atom("budget_longer", experts) for experts in (WITH_MONOLITH, EIGHT)]
ORDER = [*TUNING, *CURVE, *LONGER]
"""The order of the protocol; the monolith of a seed, a run of one expert, is in the atom with K=4."""


def lacking(atom: Atom, known: Mapping[tuple[str, str], Row]) -> list[SweepRun]:
    """Return the runs of an atom of which some arm has no row."""
    return [
        run
        for run in atom.runs()
        if any(
            (run.identities[REPORT], shown_arm(run.experiment, arm)) not in known for arm in arm_names(run.experiment)
        )
    ]


def check_recipe(experiment: Experiment, known: Iterable[Row]) -> None:
    """Raise `UserError` where an arm of the curve is not trained, or not guided, as the tuning chose.

    An arm is drawn at the scale that was best where trainings were chosen, and at the best one of its budget.
    """
    choices = budget_tuning.chosen(known)
    for arm in arm_names(experiment):
        experts, *recipe = recipe_of(experiment, arm)
        planned, choice = (*recipe, experiment.evaluate.guidance), budget_tuning.choice_for(choices, experts)
        budgets = TUNED_BUDGET, budget_of(experiment)
        wanted = [choice.planned(shown_arm(experiment, arm), budget) for budget in budgets]
        if planned not in wanted:
            raise UserError(
                f"K={experts} {arm}: learning rate, batch, guidance are {planned}, and the tuning chose {wanted[0]} for"
                f" all budgets, {wanted[1]} for this one; write that into {' and '.join(CURVE_SWEEPS)}"
            )


def show_next(path: Path, is_run: bool, with_lite0: bool) -> int:
    """Say which atom lacks rows, or run it and add them; 1 where its run failed."""
    known = budget_curve.read(path)
    for number, atom in enumerate(ORDER, 1):
        missing = lacking(atom, known)
        if not missing:
            continue
        print(
            f"atom {number} of {len(ORDER)}, {len(missing)} of its settings lack rows: hpcddm {' '.join(atom.command)}"
        )
        if atom not in TUNING:
            for run in missing:
                check_recipe(run.experiment, known.values())
        if not is_run:
            return 0
        with_lite0 = with_lite0 and atom not in TUNING
        if with_lite0:
            # Not after an hour that its weights are missing.
            lite0_features(np.zeros((1, 28, 28, 1), np.uint8))
        labels = [part for run in missing for part in ("--only", run.label)]
        command = ["sweep", atom.sweep, "--site", "embedded", *labels]
        if subprocess.run([sys.executable, "-m", "hpcddm.cli", *command], check=False).returncode:
            return 1
        seconds = wall_seconds(one.run for one in missing)
        for run in (one.run for one in missing):
            print_lines(add(rows_of(atom.sweep, run, seconds, with_lite0), path))
        print(f"rows added; commit {path}")
        return 0
    print("all atoms have their rows")
    return 0


def print_lines(remarks: Iterable[str]) -> None:
    """Print remarks, a line each."""
    for remark in remarks:
        print(remark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file of the rows")
    parser.add_argument("--without-lite0", action="store_true", help="no second ruler, which needs weights")
    verbs = parser.add_subparsers(dest="verb", required=True)
    following = verbs.add_parser("next", help="say which atom has no rows yet")
    following.add_argument("--run", action="store_true", help="run it, and add its rows")
    finished = verbs.add_parser("rows", help="rows of finished runs, or by how much they differ from known ones")
    finished.add_argument("runs", nargs="+", type=Path, help="runs of one sweep")
    verbs.add_parser("choose", help="trainings and guidance scales of the tuning, the best first")
    verbs.add_parser("hours", help="hours of two cores that all rows took")
    for verb, (text, _) in ANALYSES.items():
        own = verbs.add_parser(verb, help=text)
        own.add_argument("--one-scale", action="store_true", help=f"scales of {TUNED_BUDGET:,} images at all budgets")
    figure = verbs.add_parser("figure", help="ratios by FD and Lite0's KID, as a file")
    figure.add_argument("file", type=Path, help="a PDF, PNG or SVG")
    given = parser.parse_args()
    if given.verb == "next":
        sys.exit(show_next(given.rows, given.run, not given.without_lite0))
    known = budget_curve.read(given.rows).values()
    if given.verb == "rows":
        seconds = wall_seconds(map(RunDir, given.runs))
        for root in given.runs:
            sweep = read_index(RunDir(root.resolve().parent)).name
            if sweep in CURVE_SWEEPS:
                check_recipe(stored_experiment(RunDir(root)), known)
            print_lines(add(rows_of(sweep, RunDir(root), seconds, not given.without_lite0), given.rows))
    elif given.verb == "choose":
        budget_tuning.choose(known)
    elif given.verb == "hours":
        budget_tables.hours(known)
    elif given.verb == "figure":
        budget_figure.draw(budget_tuning.of_choice(known), given.file)
    else:
        ANALYSES[given.verb][1](budget_tuning.of_choice(known, given.one_scale))


if __name__ == "__main__":
    # A reader such as head may leave before the end.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
